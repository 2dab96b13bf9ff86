"""Tests the exporter in the container of its DaemonSet on a real node. The devices are a simulation
by the fake NVML.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agents.kube.slices import SLICES
from agents.runtime import exposition
from components.admission import resourceslice
from components.agents.exporter import ExporterArgs, daemon_set, exporter_agent
from components.agents.reconcile import ledger_config_map
from components.base.system import ClusterSpec, code_config_map, namespace
from components.base.zipapp import build_for_nodes
from tenancy import names
from tenancy.admission.policy import binding as in_force
from tenancy.ledger import Ledger, Pool, Seat
from tests.support.e2e.made import account_objects, made
from tests.support.e2e.rollout import GPUMEM, Object, ready_pod
from tests.support.waiting import eventually
from toolchain.cluster import fake_nvml, node
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.image import agent_image
from toolchain.cluster.paths import program

SYSTEM, TENANT = "exporter-test", "exporter-tenant"
NODES = names.node_agent_namespace(SYSTEM)
CLUSTER = ClusterSpec(resource_domain="viktorbarzin.me", system_namespace=SYSTEM, agent_image=agent_image())
NODE_LABELS = {"kubernetes.io/hostname": node.NODE}
POOL = Pool(name="t4", node_selector=NODE_LABELS, nodes=1, device_count=1, memory_mib=15360, reserve_mib=1360)
LEDGER = Ledger(
    domain="viktorbarzin.me", pools=(POOL,), seats=(Seat(name="chat", tenant=TENANT, pool="t4", gpumem_mib=3000),)
)
MIB = 2**20
LIFE_SECONDS = 600_613  # The test recognizes the process by this unusual duration.
CARD = f"0\ndevice GPU-real 16106127360 {5360 * MIB} {10000 * MIB}\n"
SLICE = f"{SLICES}/{LEDGER.names.device_driver}-{node.NODE}"
READ = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9401/metrics', timeout=120).read().decode())"
# A script that creates a ResourceSlice with the token of the exporter's pod.
WRITE = """
import os, pathlib, ssl, sys, urllib.error, urllib.request as r
mount = pathlib.Path('/var/run/secrets/kubernetes.io/serviceaccount')
url = 'https://%s:%s%s?dryRun=All' % (os.environ['KUBERNETES_SERVICE_HOST'], os.environ['KUBERNETES_SERVICE_PORT'],
                                      sys.argv[1])
headers = {'Authorization': 'Bearer ' + (mount / 'token').read_text(), 'Content-Type': 'application/json'}
context = ssl.create_default_context(cafile=mount / 'ca.crt')
context.verify_flags &= ~ssl.VERIFY_X509_STRICT
try:
    print(r.urlopen(r.Request(url, sys.argv[2].encode(), headers), context=context, timeout=120).read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())
"""
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
_STATUS = f"/api/v1/nodes/{node.NODE}/status"


@pytest.fixture(scope="module")
def card(real_cluster: HeldCluster) -> Path:
    libraries = node.gpu_libraries(real_cluster.folder)
    if not fake_nvml.can_build():
        pytest.skip("NO C COMPILER: the exporter is not tested on the real node")
    fake_nvml.build(libraries)
    fake_nvml.write(libraries / "card", CARD)
    return libraries / "card"


@pytest.fixture(scope="module")
def exporter(real_cluster: HeldCluster, card: Path) -> Iterator[str]:
    code = build_for_nodes()
    agent = exporter_agent(ExporterArgs(cluster=CLUSTER, code=code, ledger=LEDGER, publish_devices=True))
    agent = replace(agent, environment={**agent.environment, "INTERVAL_SECONDS": "1"})
    guard = resourceslice.exporter_writes(LEDGER.names, NODES)
    workload = daemon_set(agent, [NODE_LABELS])
    workload["spec"]["template"]["spec"]["tolerations"].append({"key": node.TAINT, "operator": "Exists"})
    api = real_cluster.api
    objects = (
        ("/api/v1/namespaces", namespace(SYSTEM, "restricted")),
        ("/api/v1/namespaces", namespace(NODES, "privileged")),
        ("/api/v1/namespaces", namespace(TENANT, "restricted")),
        (f"/api/v1/namespaces/{SYSTEM}/configmaps", ledger_config_map(LEDGER, SYSTEM, advertised=False)),
        (f"/api/v1/namespaces/{NODES}/configmaps", code_config_map(code, NODES)),
        *account_objects(agent, SYSTEM),
        (_POLICIES, guard),
        (_BINDINGS, in_force(guard)),
        (f"/apis/apps/v1/namespaces/{NODES}/daemonsets", workload),
    )
    with made(api, objects):
        api.patch(_STATUS, {"status": {"capacity": {GPUMEM: "14k"}, "allocatable": {GPUMEM: "14k"}}})
        yield eventually(lambda: ready_pod(api, NODES), "the exporter is ready")
    api.patch(_STATUS, {"status": {"capacity": {GPUMEM: None}, "allocatable": {GPUMEM: None}}})
    # A running exporter would create the ResourceSlice again.
    api.request("DELETE", SLICE)


@pytest.fixture
def tenant(real_cluster: HeldCluster, exporter: str) -> Iterator[tuple[str, int]]:
    path = f"/api/v1/namespaces/{TENANT}/pods"
    uid = real_cluster.api.create(path, tenant_pod())["metadata"]["uid"]
    yield uid, eventually(lambda: process_of(uid), "the tenant's process runs")
    real_cluster.api.request("DELETE", f"{path}/chat-0?gracePeriodSeconds=0")


def tenant_pod() -> dict[str, object]:
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "model",
        "image": agent_image(),
        "command": ["python", "-IS", "-c", f"import time; time.sleep({LIFE_SECONDS})"],
        "resources": {"limits": {GPUMEM: "3000"}, "requests": {GPUMEM: "3000"}},
        "securityContext": restricted,
    }
    spec = {"nodeName": node.NODE, "containers": [container], "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "chat-0"}, "spec": spec}


def process_of(pod_uid: str) -> int | None:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (
                f"sleep({LIFE_SECONDS})" in (folder / "cmdline").read_text()
                and pod_uid in (folder / "cgroup").read_text()
            ):
                status = (folder / "status").read_text().splitlines()
                *_, on_the_node, _ = next(line.split() for line in status if line.startswith("NSpid:"))
                return int(on_the_node)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return None


def scraped(cluster: HeldCluster, pod: str) -> list[exposition.Sample]:
    told = output(cluster, pod, READ)
    return list(exposition.parse(told.rstrip("\n") + "\n")) if told else []


def output(cluster: HeldCluster, pod: str, code: str, *arguments: str) -> str:
    kubectl = [program("kubectl"), f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NODES}"]
    command = [*kubectl, "exec", pod, "--", "python", "-c", code, *arguments]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    return told.stdout if told.returncode == 0 else ""


def mib(samples: list[exposition.Sample], name: str, uid: str) -> dict[tuple[str, ...], float]:
    found = [s for s in samples if s.name == name and s.labels["pod_uid"] == uid]
    return {tuple(s.labels.values()): s.value / MIB for s in found}


def test_a_real_pods_process_is_attributed_to_it_and_held_against_its_budget(
    real_cluster: HeldCluster, card: Path, exporter: str, tenant: tuple[str, int]
) -> None:
    uid, pid = tenant
    fake_nvml.write(card, f"{CARD}compute {pid} {4000 * MIB}\n")
    pod, device = (TENANT, "chat-0", uid), ("0", "GPU-real")

    def named() -> list[exposition.Sample]:
        samples = scraped(real_cluster, exporter)
        return samples if mib(samples, names.METRIC_POD_USED, uid) == {(*pod, "model", *device): 4000} else []

    samples = eventually(named, "its memory is served under the names that the API has told")
    assert mib(samples, names.METRIC_POD_OVER, uid) == {pod: 1000}
    assert mib(samples, names.METRIC_POD_DECLARED, uid) == {pod: 3000}
    unattributed = [s.value / MIB for s in samples if s.name == names.METRIC_UNATTRIBUTED]
    assert unattributed == [6000]
    fake_nvml.write(card, CARD)


def published(cluster: HeldCluster) -> Object | None:
    return cluster.api.get(SLICE)


def test_the_nodes_devices_are_published_as_the_nodes(real_cluster: HeldCluster, exporter: str) -> None:
    found = eventually(lambda: published(real_cluster), "the slice is there")
    spec, (owner,) = found["spec"], found["metadata"]["ownerReferences"]
    assert (spec["driver"], spec["nodeName"], spec["pool"]["name"]) == ("gpumem.viktorbarzin.me", node.NODE, node.NODE)
    (device,) = spec["devices"]
    assert device["attributes"] == {"uuid": {"string": "GPU-real"}, "index": {"int": 0}}
    assert device["capacity"] == {"memory": {"value": "15Gi"}}
    live = real_cluster.api.get(f"/api/v1/nodes/{node.NODE}") or {}
    assert (owner["kind"], owner["uid"]) == ("Node", live["metadata"]["uid"])


def test_a_kubelet_that_restarts_takes_the_slice_away_and_it_comes_back(
    real_cluster: HeldCluster, exporter: str
) -> None:
    """A restarted kubelet deletes the ResourceSlices of DRA drivers (pkg/kubelet/cm/dra/plugin)."""
    before = eventually(lambda: published(real_cluster), "the slice is there")
    kubelet = program("kubelet")
    old = real_cluster.pid_on_node(kubelet)
    os.kill(old, signal.SIGKILL)
    eventually(lambda: real_cluster.pid_on_node(kubelet) != old, "the kubelet runs again")

    def is_new() -> bool:
        found = published(real_cluster)
        return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

    eventually(is_new, "the slice is a new one")


def refused(cluster: HeldCluster, **changes: object) -> str:
    live = eventually(lambda: published(cluster), "the slice is there")
    spec = {**live["spec"], **changes}
    body = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": {"name": "other"}, "spec": spec}
    pod = eventually(lambda: ready_pod(cluster.api, NODES), "the exporter is ready")
    said = eventually(lambda: output(cluster, pod, WRITE, SLICES, json.dumps(body)), "the exporter can be asked to")
    return str(json.loads(said).get("message", ""))


def test_an_exporter_publishes_no_other_nodes_devices_and_for_no_other_driver(
    real_cluster: HeldCluster, exporter: str
) -> None:
    other = {"name": "k8s-node1", "generation": 1, "resourceSliceCount": 1}
    eventually(lambda: refused(real_cluster, nodeName="k8s-node1", pool=other), "the policy is in force")
    for changes, why in (
        ({"nodeName": "k8s-node1", "pool": other}, "may publish only the devices of the node that it runs on"),
        ({"pool": other}, "may publish only the devices of the node that it runs on"),
        ({"driver": "gpu.nvidia.com"}, "may publish only for the driver gpumem.viktorbarzin.me"),
    ):
        assert why in refused(real_cluster, **changes)
    assert refused(real_cluster) == ""


def test_a_token_that_names_no_node_publishes_nothing(real_cluster: HeldCluster, exporter: str) -> None:
    live = eventually(lambda: published(real_cluster), "the slice is there")
    user = f"system:serviceaccount:{NODES}:{names.EXPORTER}"
    body = {**live, "metadata": {"name": "other"}}

    def says() -> str | None:
        return real_cluster.api.request("POST", f"{SLICES}?dryRun=All", body, user=user).refusal

    assert "writes only with its pod's token, which names its node" in eventually(says, "it is refused")
