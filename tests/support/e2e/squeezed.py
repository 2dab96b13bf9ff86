"""Makes pods on the real node run out of host memory. The rest of the machine keeps enough host memory."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.e2e.rollout import Object
from tests.support.waiting import eventually
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.control_plane import NODE
from toolchain.cluster.image import agent_image
from toolchain.cluster.paths import program

POD_MIB = 768
CRITICAL, DISPOSABLE = "squeezed-critical", "squeezed-disposable"
_CGROUPS = Path("/sys/fs/cgroup")
_MIB = 2**20
STEP_MIB = 16
# A script that allocates some MiB. A number in the file /take allocates more, and 0 frees it.
_HOLD = """
import os, sys, time
held, more = b"." * (int(sys.argv[1]) << 20), []
while True:
    try:
        with open("/take") as file: mib = int(file.read())
        os.unlink("/take")
    except (FileNotFoundError, ValueError):
        time.sleep(0.02)
        continue
    if mib: more.append(b"." * (mib << 20))
    else: more.clear()
    with open("/taken", "a") as file: print(mib, file=file)
"""


@dataclass(frozen=True)
class Squeezed:
    cluster: HeldCluster
    namespace: str

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def run(self, name: str, *, holds_mib: int, priority: str, restart: str = "Never", **resources: Any) -> "Running":
        container = {
            "name": "main",
            "image": agent_image(),
            "command": ["python", "-ISc", _HOLD, str(holds_mib)],
            "resources": resources,
        }
        spec = {
            "nodeName": NODE,
            "priorityClassName": priority,
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container],
        }
        made = self.cluster.api.create(self.pods, {"metadata": {"name": name}, "spec": spec})
        running = Running(self, name, made["metadata"]["uid"], holds_mib)
        eventually(lambda: running.process() is not None, f"{name} holds {holds_mib} MiB")
        return running

    def left_mib(self) -> int:
        below = f"{self._root}/kubepods/"
        held = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                if below in (folder / "cgroup").read_text():
                    held += anonymous_kib(int(folder.name))
        return POD_MIB - held // 1024

    def has_limit(self) -> bool:
        name = "memory.max" if (self._cgroup / "memory.max").exists() else "memory.limit_in_bytes"
        return (self._cgroup / name).read_text().strip() == str(POD_MIB * _MIB)

    @property
    def _cgroup(self) -> Path:
        hierarchy = _CGROUPS if (_CGROUPS / "cgroup.controllers").exists() else _CGROUPS / "memory"
        return hierarchy / self._root.strip("/") / "kubepods"

    @property
    def _root(self) -> str:
        root: str = json.loads(_configuration(self.cluster).read_text())["cgroupRoot"]
        return root


@dataclass(frozen=True)
class Running:
    on: Squeezed
    name: str
    uid: str
    holds_mib: int

    def process(self) -> int | None:
        return next((pid for pid in self.processes() if resident_mib(pid) >= self.holds_mib), None)

    def processes(self) -> Iterator[int]:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                if self.uid in (folder / "cgroup").read_text():
                    yield int(folder.name)

    def take(self, mib: int) -> None:
        pid = self.process()
        if pid is None:
            return
        folder = Path("/proc", str(pid), "root")
        before = _lines(folder / "taken")
        with suppress(FileNotFoundError, ProcessLookupError):
            (folder / "take").write_text(str(mib))
        eventually(lambda: self.process() != pid or _lines(folder / "taken") > before, f"{self.name} takes {mib} MiB")

    def take_until_gone(self, victim: "Running") -> None:
        self.take(max(STEP_MIB, self.on.left_mib() - 4 * STEP_MIB))
        while victim.process() is not None and self.process() is not None:
            self.take(STEP_MIB)

    def give_back(self) -> None:
        self.take(0)

    def status(self) -> Object:
        found = self.on.cluster.api.get(f"{self.on.pods}/{self.name}")
        assert found is not None, self.name
        status: Object = found["status"]
        return status

    def exit_code(self) -> int | None:
        for found in self.status().get("containerStatuses", []):
            for state in (found["state"], found["lastState"]):
                if "terminated" in state:
                    code: int = state["terminated"]["exitCode"]
                    return code
        return None


def delete(*pods: Running) -> None:
    for pod in pods:
        pod.on.cluster.api.request("DELETE", f"{pod.on.pods}/{pod.name}?gracePeriodSeconds=0")
    for pod in pods:
        eventually(lambda pod=pod: not any(pod.processes()), f"{pod.name} is gone")


def resident_mib(pid: int) -> int:
    told = _read(pid, "status").splitlines()
    return next((int(line.split()[1]) // 1024 for line in told if line.startswith("VmRSS:")), 0)


def anonymous_kib(pid: int) -> int:
    told = _read(pid, "status").splitlines()
    return next((int(line.split()[1]) for line in told if line.startswith("RssAnon:")), 0)


def oom_score_adj(pid: int) -> int | None:
    told = _read(pid, "oom_score_adj")
    return int(told) if told else None


def _lines(path: Path) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        return len(path.read_text().splitlines())
    return 0


def _read(pid: int, name: str) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/{name}").read_text()
    return ""


@contextmanager
def squeezed(cluster: HeldCluster, namespace: str) -> Iterator[Squeezed]:
    path = _configuration(cluster)
    before = path.read_text()
    found = cluster.api.get(f"/api/v1/nodes/{NODE}")
    assert found is not None
    capacity_kib = int(found["status"]["capacity"]["memory"].removesuffix("Ki"))
    result = Squeezed(cluster, namespace)
    try:
        reserved = {"memory": f"{capacity_kib - POD_MIB * 1024}Ki"}
        reconfigure(cluster, systemReserved=reserved, evictionHard={"memory.available": "0%"})
        eventually(result.has_limit, "the pods have their limit")
        yield result
    finally:
        path.write_text(before)
        reconfigure(cluster)
        eventually(lambda: not result.has_limit(), "the pods have their limit no more")


def reconfigure(cluster: HeldCluster, **fields: Any) -> None:
    path = _configuration(cluster)
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    kubelet = program("kubelet")
    old = cluster.pid_on_node(kubelet)
    os.kill(old, signal.SIGKILL)
    eventually(lambda: _pid(cluster, kubelet) not in (None, old), "the kubelet runs again")


def _configuration(cluster: HeldCluster) -> Path:
    return cluster.folder.path / "kubelet.json"


def _pid(cluster: HeldCluster, words: str) -> int | None:
    with suppress(ProcessLookupError):
        return cluster.pid_on_node(words)
    return None
