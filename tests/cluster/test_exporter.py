"""The exporter as its DaemonSet's container on the real node: real pods' processes, found by their control groups.

The devices are the fake NVML's, put where NVIDIA's runtime would mount the driver's libraries.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents import exposition
from components.capacity import ledger_config_map
from components.exporter import ExporterArgs, ExporterSpec, daemon_set, exporter_agent
from components.identity import binding, role, service_account
from components.system import ClusterSpec, code_config_map, namespace
from components.zipapp import NVML, build
from tenancy import names
from tenancy.ledger import Ledger, Pool, Seat
from tests.agents import fake_nvml
from tests.cluster.rollout import GPUMEM, eventually
from toolchain.cluster import node
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.image import agent_image
from toolchain.cluster.paths import program

SYSTEM, TENANT = "exporter-test", "exporter-tenant"
NODES = names.node_agent_namespace(SYSTEM)
CLUSTER = ClusterSpec(resource_domain="viktorbarzin.me", system_namespace=SYSTEM, agent_image=agent_image())
POOL = Pool(name="t4", node_selector={"a": "b"}, nodes=1, device_count=1, memory_mib=15360, reserve_mib=1360)
LEDGER = Ledger(
    domain="viktorbarzin.me", pools=(POOL,), seats=(Seat(name="chat", tenant=TENANT, pool="t4", gpumem_mib=3000),)
)
MIB = 2**20
LIFE_SECONDS = 600_613  # tells the process from all others
CARD = f"0\ndevice GPU-real 16106127360 {5360 * MIB} {10000 * MIB}\n"
READ = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9401/metrics', timeout=5).read().decode())"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_STATUS = f"/api/v1/nodes/{node.NODE}/status"


@pytest.fixture(scope="module")
def card(real_cluster: HeldCluster) -> Path:
    """The file that says what the fake library shows on the node."""
    libraries = node.gpu_libraries(real_cluster.folder)
    if not fake_nvml.build(libraries):
        pytest.skip("NO C COMPILER: the exporter is not tested on the real node")
    (libraries / "card").write_text(CARD)
    return libraries / "card"


@pytest.fixture(scope="module")
def exporter(real_cluster: HeldCluster, card: Path) -> Iterator[str]:
    """The pod's name, once it is ready."""
    code = build(vendored=NVML)
    agent = exporter_agent(
        ExporterArgs(spec=ExporterSpec(interval_seconds=1), cluster=CLUSTER, code=code, ledger=LEDGER)
    )
    workload = daemon_set(agent, 9401, [{"kubernetes.io/hostname": node.NODE}])
    workload["spec"]["template"]["spec"]["tolerations"].append({"key": node.TAINT, "operator": "Exists"})
    identity, api = agent.identity, real_cluster.api
    for collection, manifest in (
        ("/api/v1/namespaces", namespace(SYSTEM, "restricted")),
        ("/api/v1/namespaces", namespace(NODES, "privileged")),
        ("/api/v1/namespaces", namespace(TENANT, "restricted")),
        (f"/api/v1/namespaces/{SYSTEM}/configmaps", ledger_config_map(LEDGER, SYSTEM, advertised=False)),
        (f"/api/v1/namespaces/{NODES}/configmaps", code_config_map(code, NODES)),
        (f"/api/v1/namespaces/{NODES}/serviceaccounts", service_account(identity)),
        (f"{_RBAC}/clusterroles", role(identity, None)),
        (f"{_RBAC}/clusterrolebindings", binding(identity, None)),
        (f"{_RBAC}/namespaces/{SYSTEM}/roles", role(identity, SYSTEM)),
        (f"{_RBAC}/namespaces/{SYSTEM}/rolebindings", binding(identity, SYSTEM)),
        (f"/apis/apps/v1/namespaces/{NODES}/daemonsets", workload),
    ):
        api.create(collection, manifest)
    api.patch(_STATUS, {"status": {"capacity": {GPUMEM: "14k"}, "allocatable": {GPUMEM: "14k"}}})
    try:
        yield eventually(lambda: ready_pod(real_cluster), "the exporter is ready")
    finally:
        made = (
            *(f"/api/v1/namespaces/{name}" for name in (TENANT, NODES, SYSTEM)),
            f"{_RBAC}/clusterroles/{names.EXPORTER}",
            f"{_RBAC}/clusterrolebindings/{names.EXPORTER}",
        )
        for path in made:
            api.request("DELETE", path)
        api.patch(_STATUS, {"status": {"capacity": {GPUMEM: None}, "allocatable": {GPUMEM: None}}})
        eventually(lambda: not any(map(api.get, made)), "all is gone")


def ready_pod(cluster: HeldCluster) -> str | None:
    for pod in (cluster.api.get(f"/api/v1/namespaces/{NODES}/pods") or {"items": []})["items"]:
        if any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", [])):
            return str(pod["metadata"]["name"])
    return None


@pytest.fixture
def tenant(real_cluster: HeldCluster, exporter: str) -> Iterator[tuple[str, int]]:
    """The UID of a tenant's pod on the node, with a budget of 3000 MiB, and its process as the node counts."""
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
    """The process id of the pod's model in the PID namespace of the node."""
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
    """What the exporter answers within its pod; nothing where it answers with an error."""
    kubectl = [program("kubectl"), f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NODES}"]
    told = subprocess.run(
        [*kubectl, "exec", pod, "--", "python", "-c", READ], capture_output=True, text=True, check=False
    )
    return list(exposition.parse(told.stdout.rstrip("\n") + "\n")) if told.returncode == 0 else []


def mib(samples: list[exposition.Sample], name: str, uid: str) -> dict[tuple[str, ...], float]:
    found = [s for s in samples if s.name == name and s.labels["pod_uid"] == uid]
    return {tuple(s.labels.values()): s.value / MIB for s in found}


def test_a_real_pods_process_is_attributed_to_it_and_held_against_its_budget(
    real_cluster: HeldCluster, card: Path, exporter: str, tenant: tuple[str, int]
) -> None:
    uid, pid = tenant
    card.write_text(f"{CARD}compute {pid} {4000 * MIB}\n")
    pod, device = (TENANT, "chat-0", uid), ("0", "GPU-real")

    def named() -> list[exposition.Sample]:
        samples = scraped(real_cluster, exporter)
        return samples if mib(samples, names.METRIC_POD_USED, uid) == {(*pod, "model", *device): 4000} else []

    samples = eventually(named, "its memory is served under the names that the API has told")
    assert mib(samples, names.METRIC_POD_OVER, uid) == {pod: 1000}
    assert mib(samples, names.METRIC_POD_DECLARED, uid) == {pod: 3000}
    unattributed = [s.value / MIB for s in samples if s.name == names.METRIC_UNATTRIBUTED]
    assert unattributed == [6000]
    card.write_text(CARD)
