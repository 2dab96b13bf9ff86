"""Starts and stops a cluster, adds nodes, and finds the cluster's kubeconfig, logs and processes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from toolchain.cluster import node, paths, simulated
from toolchain.cluster.api import PAUSE_SECONDS, ClusterApi, wait_until
from toolchain.cluster.errors import ClusterError
from toolchain.cluster.extent import Extent
from toolchain.cluster.paths import CHECKOUT, Folder

START_SECONDS = 300
STOP_SECONDS = 120
NODE_SECONDS = 120
SUPERVISOR = "supervisor"


@dataclass(frozen=True)
class Cluster:
    """Describes a cluster. The path of a cluster's folder identifies the cluster. A cluster is either running or
    stopped."""

    folder: Folder

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder.kubeconfig

    @cached_property
    def api(self) -> ClusterApi:
        return ClusterApi(self.kubeconfig)

    @property
    def pid(self) -> int | None:
        """The PID of the supervisor, or None if the supervisor does not run."""
        pid: int | None = self.folder.read_state().get("pid")
        return pid if pid is not None and _lives(pid) else None

    def pid_of(self, process: str) -> int:
        """Returns the PID of the cluster's process with this name, such as etcd, kube-apiserver or node."""
        pid: int = self.folder.read_state()["processes"][process]
        return pid

    def pid_on_node(self, *words: str) -> int:
        """Returns the PID on this machine of a process of the real node.

        The command line of the process must contain the given words. If the process does not exist, raises
        ProcessLookupError.
        """
        return node.find_process(self.pid_of("node"), words)

    def log(self, process: str) -> Path:
        """Returns the path of the log of a process: etcd, kube-apiserver, kueue, ..., supervisor."""
        return self.folder.log(process)

    def add_node(self, name: str, *, labels: Mapping[str, str], resources: Mapping[str, str]) -> None:
        """Adds a simulated node and waits until all nodes are Ready. Raises ClusterError."""
        self.api.create("/api/v1/nodes", simulated.node(name, labels=labels, resources=resources))
        wait_until(self._nodes_are_ready, NODE_SECONDS, "the new node is Ready")

    def _nodes_are_ready(self) -> bool:
        found = self.api.get("/api/v1/nodes") or {"items": []}
        return all(simulated.is_ready(node) for node in found["items"])

    def stop(self) -> None:
        """Stops the cluster and waits until its supervisor has ended. Keeps the logs. Raises ClusterError."""
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not _lives(pid), STOP_SECONDS, "the cluster has stopped")


def start(path: Path, *, extent: Extent) -> Cluster:
    """Starts a cluster that runs until `stop` is called. Raises ClusterError."""
    cluster = Cluster(Folder(path))
    if cluster.pid is not None:
        raise ClusterError(f"a cluster runs in {path} already")
    _await_ready(cluster, _spawn(cluster.folder, extent=extent, held=False))
    return cluster


@contextmanager
def running(path: Path, *, extent: Extent) -> Iterator["HeldCluster"]:
    """Runs a cluster while the `with` block runs. The cluster also stops if this process is killed.

    Raises ClusterError.
    """
    cluster = Cluster(Folder(path))
    supervisor = _spawn(cluster.folder, extent=extent, held=True)
    try:
        _await_ready(cluster, supervisor)
        yield HeldCluster(cluster.folder, supervisor)
    finally:
        supervisor.communicate(timeout=STOP_SECONDS)  # the supervisor ends when its standard input is closed


@dataclass(frozen=True)
class HeldCluster(Cluster):
    """A cluster with a supervisor that reads commands from this process."""

    supervisor: "subprocess.Popen[str]"

    def restart(self, process: str) -> None:
        """Restarts one of the cluster's processes and waits until the new process runs."""
        old = self.pid_of(process)
        print(f"restart {process}", file=self.supervisor.stdin, flush=True)
        wait_until(lambda: self.pid_of(process) != old, STOP_SECONDS, f"{process} has been started again")


def _spawn(folder: Folder, *, extent: Extent, held: bool) -> "subprocess.Popen[str]":
    if lacking := paths.missing(paths.CONTROL_PLANE):
        raise ClusterError(f"not installed: {', '.join(lacking)}; run make cluster-toolchain")
    shutil.rmtree(folder.path, ignore_errors=True)
    log = folder.log(SUPERVISOR)
    log.parent.mkdir(parents=True)
    given = ("--extent", extent.value, *(["--held"] if held else []))
    arguments = [sys.executable, "-m", "toolchain.cluster", "run", str(folder.path), *given]
    with log.open("wb") as output:
        return subprocess.Popen(
            arguments,
            cwd=CHECKOUT,
            stdin=subprocess.PIPE if held else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
        )


def _await_ready(cluster: Cluster, supervisor: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while not cluster.folder.state.exists():
        if supervisor.poll() is not None:
            raise ClusterError(f"it does not start:\n{cluster.log(SUPERVISOR).read_text().rstrip()}")
        if time.monotonic() > deadline:
            supervisor.terminate()
            raise ClusterError(f"the cluster is not ready within {START_SECONDS} s; see {cluster.log(SUPERVISOR)}")
        time.sleep(PAUSE_SECONDS)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
