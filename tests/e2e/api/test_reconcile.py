"""Tests reconcile as a process. A proxy between reconcile and a real API server causes faults."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agents.kube.slices import SLICES
from components.admission import node_status
from components.agents.reconcile import CapacityArgs, ledger_config_map, reconcile_agent
from components.base import identity, zipapp
from components.base.identity import Account
from components.base.system import ClusterSpec
from tenancy import names
from tenancy.admission.policy import binding
from tenancy.choices import Source
from tenancy.ledger import Ledger, Pool
from tenancy.names import LABEL_GPU_COUNT, LABEL_GPU_MEMORY, Names
from tests.support.e2e import agent_process
from tests.support.e2e.access import await_right
from tests.support.e2e.agent_process import end, mounted, stop
from tests.support.e2e.made import account_objects
from tests.support.e2e.proxy import Fault, Proxy, proxied
from tests.support.e2e.server import RECONCILE, ApiServer
from tests.support.nvidia_slices import Gpu, nvidia_slice
from tests.support.waiting import becomes, eventually
from toolchain.cluster.paths import Folder

NAMES = Names("example.org")
SYSTEM = "gpu-tenancy-system"
NODE, NODES = "/api/v1/nodes/k8s-node1", "/api/v1/nodes?limit="
WATCH = "/api/v1/nodes?watch=1"
LEDGER = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"
POOL = Pool(
    name="t4", node_selector={"gpu": "t4"}, nodes=1, device_count=1, memory_mib=15360, reserve_mib=1360, floor_mib=1536
)
LABELS = {"gpu": "t4", LABEL_GPU_MEMORY: "15360", LABEL_GPU_COUNT: "1"}
HARDWARE = {"cpu": "8", "nvidia.com/gpu": "100"}
OURS = {NAMES.gpumem: "14k", NAMES.gpu_count: "14k"}


def reconcile_identity(ledger: Ledger) -> Account:
    cluster = ClusterSpec(resource_domain=NAMES.domain, system_namespace=SYSTEM, agent_image="python:3.13.9")
    args = CapacityArgs(cluster=cluster, code=zipapp.build(), ledger=ledger, reconcile=True)
    return reconcile_agent(args, run_seconds=0)


@pytest.fixture(scope="module")
def account(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    ledger, code = Ledger(domain=NAMES.domain, pools=(POOL,)), zipapp.build()
    agent = reconcile_identity(ledger)
    server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}, "namespaces")
    own = f"/api/v1/namespaces/{SYSTEM}"
    for path, manifest in account_objects(agent, SYSTEM):
        server.create(path, manifest)
    for policy in (node_status.reconcile_writes(NAMES, SYSTEM), node_status.capacity_writers(NAMES, SYSTEM)):
        server.apply(policy, "validatingadmissionpolicies")
        server.apply(binding(policy), "validatingadmissionpolicybindings")
    server.create(f"{own}/configmaps", ledger_config_map(ledger, SYSTEM, advertised=True))
    await_right(server.api, RECONCILE, "patch", "nodes/status")
    return mounted(server, agent, code, tmp_path_factory.mktemp("account"))


@pytest.fixture
def node(server: ApiServer, account: Path) -> Iterator[ApiServer]:
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "k8s-node1", "labels": LABELS}}
    server.api.create("/api/v1/nodes", manifest)
    server.api.patch(f"{NODE}/status", {"status": {"capacity": HARDWARE, "allocatable": HARDWARE}})
    yield server
    server.request("DELETE", NODE)


@pytest.fixture
def proxy(node: ApiServer) -> Iterator[Proxy]:
    with proxied(Folder(node.api.kubeconfig.parent), node.api.server) as running:
        yield running


@pytest.fixture
def by_slices(node: ApiServer) -> Iterator[ApiServer]:
    ledger = Ledger(domain=NAMES.domain, pools=(replace(POOL, source=Source.SLICES),))
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{names.RECONCILE}"
    role = node.request("GET", path).body
    node.api.patch(path, {"rules": identity.role(reconcile_identity(ledger), None)["rules"]})
    await_right(node.api, RECONCILE, "list", "resourceslices", group="resource.k8s.io")
    stored = node.request("GET", LEDGER).body["data"]
    node.api.patch(LEDGER, {"data": ledger_config_map(ledger, SYSTEM, advertised=True)["data"]})
    node.api.patch(NODE, {"metadata": {"labels": dict.fromkeys((LABEL_GPU_MEMORY, LABEL_GPU_COUNT))}})
    yield node
    node.api.patch(LEDGER, {"data": stored})
    node.api.patch(path, {"rules": role["rules"]})


def start(proxy: Proxy, account: Path, *, run_seconds: int = 0, interval_seconds: int = 1) -> "subprocess.Popen[str]":
    times = {"INTERVAL_SECONDS": str(interval_seconds), "RUN_SECONDS": str(run_seconds)}
    return agent_process.start(account, "reconcile", proxy.port, {"LEDGER_NAMESPACE": SYSTEM, **times})


def shown(server: ApiServer) -> tuple[dict[str, str], dict[str, str]]:
    status = server.request("GET", NODE).body["status"]
    return status["capacity"], status["allocatable"]


FAULTS: dict[str, tuple[Fault, list[int | None]]] = {
    "a list that is cut off": (Fault(method="GET", path=NODES, body_bytes=100), [200, 200]),
    "a write whose answer is lost": (Fault(method="PATCH", path=NODE, body_bytes=0), [200, 409]),
}


@pytest.mark.parametrize("case", FAULTS)
def test_reconcile_advertises_the_node_after_a_fault(node: ApiServer, proxy: Proxy, account: Path, case: str) -> None:
    fault, answered = FAULTS[case]
    proxy.faults.append(Fault(**vars(fault)))
    code, log = end(start(proxy, account))
    assert (code, log[-1]["message"]) == (0, "all nodes are up to date"), log
    assert proxy.statuses(fault.method, fault.path)[: len(answered)] == answered
    assert shown(node) == (HARDWARE | OURS, HARDWARE | OURS)


def test_a_concurrent_write_of_another_client_is_kept(node: ApiServer, proxy: Proxy, account: Path) -> None:
    def somebody() -> None:
        node.api.patch(NODE, {"metadata": {"labels": {"zone": "b"}}})
        node.api.patch(f"{NODE}/status", {"status": {"capacity": {"cpu": "16"}, "allocatable": {"cpu": "15"}}})

    proxy.faults.append(Fault(method="PATCH", path=NODE, meanwhile=somebody))
    code, log = end(start(proxy, account))
    assert code == 0, log
    assert proxy.statuses("PATCH", NODE) == [409, 200]
    assert node.request("GET", NODE).body["metadata"]["labels"]["zone"] == "b"
    assert shown(node) == (HARDWARE | OURS | {"cpu": "16"}, HARDWARE | OURS | {"cpu": "15"})


def test_a_node_that_leaves_the_pool_between_read_and_write_is_not_advertised(
    node: ApiServer, proxy: Proxy, account: Path
) -> None:
    def leave() -> None:
        node.api.patch(NODE, {"metadata": {"labels": {"gpu": None}}})

    proxy.faults.append(Fault(method="PATCH", path=NODE, meanwhile=leave))
    code, log = end(start(proxy, account))
    assert (code, log[-1]["message"]) == (1, "not up to date: pool t4: no node matches its node_selector")
    assert proxy.statuses("PATCH", NODE) == [409]
    assert shown(node) == (HARDWARE, HARDWARE)


def test_a_node_that_loses_its_keys_gets_them_back_by_a_watch(node: ApiServer, proxy: Proxy, account: Path) -> None:
    agent = start(proxy, account, run_seconds=3600, interval_seconds=3600)
    whole = (HARDWARE | OURS, HARDWARE | OURS)
    becomes(lambda: shown(node), whole, "the node is advertised")
    eventually(lambda: proxy.statuses("GET", WATCH), "it watches")
    without = dict.fromkeys(OURS)
    node.api.patch(f"{NODE}/status", {"status": {"capacity": without, "allocatable": without}})
    becomes(lambda: shown(node), whole, "the node is advertised again")
    stop(agent)


def test_a_node_without_labels_is_advertised_by_nvidias_slices_for_as_long_as_they_show_it(
    by_slices: ApiServer, proxy: Proxy, account: Path
) -> None:
    agent = start(proxy, account, run_seconds=3600, interval_seconds=3600)
    eventually(lambda: proxy.statuses("GET", f"{SLICES}?watch=1"), "it watches")
    assert shown(by_slices) == (HARDWARE, HARDWARE)
    found = by_slices.api.create(SLICES, nvidia_slice("k8s-node1", [Gpu(shares="memory"), Gpu(minor=1, mib=24576)]))
    try:
        becomes(lambda: shown(by_slices), (HARDWARE | OURS, HARDWARE | OURS), "the node is advertised")
        smaller = nvidia_slice("k8s-node1", [Gpu(mib=8192)], generation=2)
        by_slices.api.patch(f"{SLICES}/{found['metadata']['name']}", {"spec": smaller["spec"]})
        less = HARDWARE | OURS | {NAMES.gpumem: "6832", NAMES.gpu_count: "6832"}
        becomes(lambda: shown(by_slices), (less, less), "no more than is shown")
    finally:
        by_slices.request("DELETE", f"{SLICES}/{found['metadata']['name']}")
        stop(agent)
