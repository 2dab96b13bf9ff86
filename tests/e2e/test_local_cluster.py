"""Tests that the local cluster ends with its parent process, and reports why a program has ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.e2e.processes import lives
from tests.support.waiting import becomes, eventually
from toolchain.cluster import cluster
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.extent import Extent
from toolchain.cluster.paths import CHECKOUT


def test_a_second_cluster_runs_next_to_the_first_and_ends_completely_if_a_part_of_it_ends(
    real_cluster: HeldCluster, tmp_path: Path
) -> None:
    with cluster.running(tmp_path / "second", extent=Extent.API_SERVER) as second:
        before = second.pid_of("kube-apiserver")
        second.restart("kube-apiserver")
        assert second.pid_of("kube-apiserver") != before
        becomes(lambda: second.api.request("GET", "/readyz").code, 200, "it is ready again")
        processes = [second.pid_of(name) for name in ("etcd", "kube-apiserver")]
        os.kill(processes[0], signal.SIGKILL)
        eventually(lambda: second.supervisor.poll() is not None, "the supervisor has ended")
        assert not any(map(lives, processes))
        said = second.log(cluster.SUPERVISOR).read_text()
    assert "cluster: etcd ended (-9); the end of" in said
    assert "  | {" in said
    assert real_cluster.api.get("/api/v1/nodes/localhost")


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
def test_no_process_outlives_a_killed(installed: None, tmp_path: Path, victim: str) -> None:
    if victim == "supervisor" and sys.platform != "linux":
        pytest.skip("only Linux ends a process with its parent")
    arguments = [sys.executable, "-c", HOLDER, str(tmp_path / "held")]
    with subprocess.Popen(arguments, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        supervisor, *parts = map(int, starter.stdout.readline().split())
        os.kill(starter.pid if victim == "starter" else supervisor, signal.SIGKILL)
        eventually(lambda: not any(map(lives, (supervisor, *parts))), "all has ended")
        starter.kill()
