"""The local cluster itself: what is in it, that it ends with its starter, that it says why a part ended."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import audit
from tests.e2e.processes import lives
from tests.e2e.rollout import becomes, eventually
from toolchain.cluster import cluster
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.errors import ClusterError
from toolchain.cluster.extent import Extent
from toolchain.cluster.paths import CHECKOUT

GFD = "nvidia.com/gpu."


def nodes(found: HeldCluster) -> Mapping[str, Any]:
    return {node["metadata"]["name"]: node for node in (found.api.get("/api/v1/nodes") or {})["items"]}


def test_the_nodes_are_those_of_prod_and_a_real_one(real_cluster: HeldCluster) -> None:
    found = nodes(real_cluster)
    assert set(found) == {"k8s-node1", "k8s-node2", "node-4", "node-5", "node-6", "localhost"}
    shared, whole = found["k8s-node1"], found["k8s-node2"]
    assert shared["metadata"]["labels"][f"{GFD}sharing-strategy"] == "time-slicing"
    assert (shared["status"]["allocatable"]["nvidia.com/gpu"], whole["status"]["allocatable"]["nvidia.com/gpu"]) == (
        "100",
        "1",
    )
    assert [taint["key"] for taint in whole["spec"]["taints"]] == ["nvidia.com/gpu"]
    assert found["node-4"]["status"]["allocatable"]["memory"] == "61Gi"
    assert found["localhost"]["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")


def test_a_node_can_be_added(real_cluster: HeldCluster) -> None:
    real_cluster.add_node("node-7", labels={"zone": "b"}, resources={"memory": "1Gi"})
    assert nodes(real_cluster)["node-7"]["metadata"]["labels"]["zone"] == "b"
    assert real_cluster.api.request("DELETE", "/api/v1/nodes/node-7").refusal is None


def test_nobody_is_let_in_without_a_certificate(real_cluster: HeldCluster) -> None:
    answer = real_cluster.api.request("GET", "/api/v1/nodes", user="somebody")
    assert (answer.code, "cannot list resource" in str(answer.refusal)) == (403, True)


def test_the_audit_log_tells_who_asked_for_what(real_cluster: HeldCluster) -> None:
    real_cluster.api.request("GET", "/api/v1/nodes", user="somebody-else")
    (entry,) = audit.entries(real_cluster, "somebody-else")
    assert entry["impersonatedUser"]["username"] == "somebody-else"
    assert (entry["verb"], entry["objectRef"]["resource"]) == ("list", "nodes")


def test_a_second_cluster_runs_next_to_the_first_and_ends_alone_and_whole_with_a_part_of_it(
    real_cluster: HeldCluster, tmp_path: Path
) -> None:
    with cluster.running(tmp_path / "second", extent=Extent.SIMULATED) as second:
        assert set(nodes(second)) == {"k8s-node1", "k8s-node2", "node-4", "node-5", "node-6"}
        before = second.pid_of("kube-apiserver")
        second.restart("kube-apiserver")
        assert second.pid_of("kube-apiserver") != before
        becomes(lambda: second.api.request("GET", "/readyz").code, 200, "it is ready again")
        processes = [second.pid_of(name) for name in ("etcd", "kube-apiserver", "kube-scheduler", "kwok")]
        os.kill(processes[0], signal.SIGKILL)
        eventually(lambda: second.supervisor.poll() is not None, "the supervisor has ended")
        assert not any(map(lives, processes))
        said = second.log(cluster.SUPERVISOR).read_text()
    assert "cluster: etcd ended (-9); the end of" in said
    assert "  | {" in said
    assert "localhost" in nodes(real_cluster)


def test_a_cluster_that_cannot_start_says_why(installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(ClusterError, match="openssl makes the cluster's certificates, and is not on PATH"),
        cluster.running(tmp_path / "none", extent=Extent.API_SERVER),
    ):
        pass


HOLDER = """
import sys, time
from pathlib import Path
from toolchain.cluster import cluster
from toolchain.cluster.extent import Extent
with cluster.running(Path(sys.argv[1]), extent=Extent.API_SERVER) as found:
    print(found.pid, found.pid_of("etcd"), found.pid_of("kube-apiserver"), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("victim", ["starter", "supervisor"])
def test_nothing_outlives_a_killed(installed: None, tmp_path: Path, victim: str) -> None:
    if victim == "supervisor" and sys.platform != "linux":
        pytest.skip("only Linux ends a process with its parent")
    arguments = [sys.executable, "-c", HOLDER, str(tmp_path / "held")]
    with subprocess.Popen(arguments, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        supervisor, *parts = map(int, starter.stdout.readline().split())
        os.kill(starter.pid if victim == "starter" else supervisor, signal.SIGKILL)
        eventually(lambda: not any(map(lives, (supervisor, *parts))), "all has ended")
        starter.kill()
