"""Tests the board in the container of its Deployment on a real node, with its own account."""

import subprocess
from collections.abc import Iterator

import pytest

from components.agents.board import Board, BoardArgs, BoardSpec, IngressSpec
from components.agents.reconcile import ledger_config_map
from components.base.system import ClusterSpec, namespace
from components.base.zipapp import build_for_board
from tenancy import names
from tenancy.ledger import Ledger, Pool, Seat
from tests.support.e2e import plugin
from tests.support.e2e.made import made
from tests.support.e2e.rollout import GPUMEM, Object, ready_pod
from tests.support.given import declared
from tests.support.waiting import eventually
from toolchain.cluster import node
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.image import agent_image
from toolchain.cluster.paths import program

SYSTEM, TENANT = "board-test", "board-tenant"
NODES = names.node_agent_namespace(SYSTEM)
CLUSTER = ClusterSpec(resource_domain="viktorbarzin.me", system_namespace=SYSTEM, agent_image=agent_image())
SPEC = BoardSpec(ingress=IngressSpec(namespace="ingress-nginx", pod_labels={"app": "proxy"}))
POOL = Pool(
    name="t4",
    node_selector={"kubernetes.io/hostname": node.NODE},
    nodes=1,
    device_count=1,
    memory_mib=15360,
    reserve_mib=1360,
)
SEAT = Seat(name="chat", tenant=TENANT, pool="t4", gpumem_mib=3000)
LEDGER = Ledger(domain="viktorbarzin.me", pools=(POOL,), seats=(SEAT,))
READ = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9403/gpus/', timeout=20).read().decode())"
COLLECTIONS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
}
_STATUS = f"/api/v1/nodes/{node.NODE}/status"


def objects() -> Iterator[tuple[str, Object]]:
    for name in (SYSTEM, NODES, TENANT):
        yield "/api/v1/namespaces", namespace(name, "restricted")
    yield COLLECTIONS["ConfigMap"].format(SYSTEM), ledger_config_map(LEDGER, SYSTEM, advertised=False)
    board = declared(Board, "board", BoardArgs(spec=SPEC, cluster=CLUSTER, code=build_for_board()))
    for each in board.objects():
        yield COLLECTIONS[each["kind"]].format(each["metadata"].get("namespace")), each


@pytest.fixture(scope="module")
def board(real_cluster: HeldCluster) -> Iterator[str]:
    with made(real_cluster.api, objects()):
        real_cluster.api.patch(_STATUS, {"status": {"capacity": {GPUMEM: "14k"}, "allocatable": {GPUMEM: "14k"}}})
        try:
            yield eventually(lambda: ready_pod(real_cluster.api, SYSTEM), "the board is ready")
        finally:
            real_cluster.api.patch(_STATUS, {"status": {"capacity": {GPUMEM: None}, "allocatable": {GPUMEM: None}}})


def page(cluster: HeldCluster, pod: str) -> str:
    kubectl = [program("kubectl"), f"--kubeconfig={cluster.kubeconfig}", f"--namespace={SYSTEM}"]
    command = [*kubectl, "exec", pod, "--", "python", "-c", READ]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_the_board_shows_the_pools_and_sums_that_its_account_reads(real_cluster: HeldCluster, board: str) -> None:
    found = eventually(lambda: page(real_cluster, board), "the page is served")
    assert "3000 of 14000 MiB promised, 11000 to promise" in found
    users = plugin.shown(real_cluster.kubeconfig, "who", "--system-namespace", SYSTEM)
    (pool,), unknown = users["pools"], users["unknown"]
    assert (pool["promised_mib"], pool["advertised_mib"], pool["unpromised_mib"]) == (3000, 14000, 11000)
    assert "These numbers are old" not in found
    assert f"{len(unknown)} facts" in found, unknown  # `who` runs with the rights of the administrator
    assert TENANT not in found
