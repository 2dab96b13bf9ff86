"""Tests the guard on real processes in real control groups. Only the API server is a fake."""

import http.client
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agents.runtime import exposition
from tenancy import names
from tenancy.host_memory.oom import guarded_oom_score_adj
from tests.support.api_server import ServedOverTls
from tests.support.http_get import get
from tests.support.paths import ROOT
from tests.support.waiting import becomes, eventually
from toolchain.cluster.process import free_ports

TOTAL_MIB, LIMIT_MIB, BY_REQUEST = 1024, 537, 869
GUARDED = guarded_oom_score_adj(LIMIT_MIB, TOTAL_MIB)
RESTARTS = 3
NOBODY = 65534
SYS_RESOURCE = 24


@dataclass
class Pod:
    name: str
    group: Path
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))

    @contextmanager
    def process(self, adj: int, user: int = 0) -> Iterator[int]:
        container = self.group / f"pod{self.uid}" / (uuid.uuid4().hex * 2)
        container.mkdir(parents=True)
        with subprocess.Popen(["sleep", "600"], user=user) as process:
            (container / "cgroup.procs").write_text(str(process.pid))
            Path(f"/proc/{process.pid}/oom_score_adj").write_text(str(adj))
            try:
                yield process.pid
            finally:
                process.kill()

    def manifest(self, priority: str) -> dict[str, Any]:
        limits = {"limits": {"memory": f"{LIMIT_MIB}Mi"}}
        return {
            "kind": "Pod",
            "metadata": {"namespace": "inference", "name": self.name, "uid": self.uid},
            "spec": {
                "nodeName": "node-4",
                "priorityClassName": priority,
                "containers": [{"name": "main", "resources": limits}],
            },
            "status": {"phase": "Running"},
        }


@dataclass
class Scene:
    served: ServedOverTls
    protected: Pod
    disposable: Pod
    process: subprocess.Popen[bytes]
    port: int

    def metric(self, name: str) -> float | None:
        status, page = get(f"http://127.0.0.1:{self.port}/metrics")
        samples = exposition.parse(page) if status == http.client.OK else ()
        found = (s.value for s in samples if s.name == name and s.labels["pod_uid"] == self.protected.uid)
        return next(found, None)


@pytest.fixture
def scene(group: Path, served: ServedOverTls, zipapp: Path) -> Iterator[Scene]:
    protected, disposable = Pod("llm", group), Pod("vm", group)
    served.cluster.pods += [protected.manifest("critical"), disposable.manifest("disposable")]
    served.cluster.add_node("node-4")
    served.cluster.nodes["node-4"]["status"]["allocatable"]["memory"] = f"{TOTAL_MIB}Mi"
    served.cluster.watches_last = True
    (port,) = free_ports(1)
    environ = {
        **served.environ(),
        "PORT": str(port),
        "NODE_NAME": "node-4",
        "POD_NAME": "guard-0",
        "PROTECTED": "inference/critical",
        "ALLOCATABLE_MIB": str(TOTAL_MIB),
        "VICTIM_REQUEST_MIB": "0",
    }
    with subprocess.Popen([sys.executable, "-I", str(zipapp), "guard"], env=environ) as process:
        try:
            found = Scene(served, protected, disposable, process, port)
            eventually(lambda: found.metric(names.METRIC_GUARD_ADJ) is not None)
            yield found
        finally:
            process.terminate()
            served.cluster.end_watches()


def until_held(pid: int) -> None:
    becomes(partial(adj, pid), GUARDED)


def adj(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_a_protected_pod_is_held_after_each_start(scene: Scene) -> None:
    for _ in range(RESTARTS):
        with scene.protected.process(BY_REQUEST) as pid:
            until_held(pid)


def test_it_touches_no_other_process_and_raises_none(scene: Scene) -> None:
    with ExitStack() as stack:
        vm = stack.enter_context(scene.disposable.process(1000))
        sandbox = stack.enter_context(scene.protected.process(0))
        outside = stack.enter_context(subprocess.Popen(["sleep", "600"]))
        Path(f"/proc/{outside.pid}/oom_score_adj").write_text("900")
        protected = stack.enter_context(scene.protected.process(1000))
        until_held(protected)
        assert (adj(vm), adj(sandbox), adj(outside.pid)) == (1000, 0, 900)
        outside.kill()


LOWER = """
import sys
from pathlib import Path
from agents.node.cgroup import container_in
from agents.guard.oom_score_adj import lower_adj
pid = int(sys.argv[1])
lower_adj(Path("/proc"), pid, container_in(Path(f"/proc/{pid}/cgroup").read_text()), int(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("capabilities", "lowered"),
    [("sys_resource dac_override", True), ("dac_override", False), ("sys_resource", False), ("", False)],
)
def test_the_guard_needs_its_two_capabilities_and_no_other(group: Path, capabilities: str, lowered: bool) -> None:
    if not has(SYS_RESOURCE):
        pytest.skip("root lacks CAP_SYS_RESOURCE on this machine: what the guard needs of it is NOT tested")
    bounds = ",".join(["-all", *(f"+{name}" for name in capabilities.split())])
    with Pod("llm", group).process(BY_REQUEST, user=NOBODY) as pid:
        program = ("setpriv", f"--bounding-set={bounds}", "--inh-caps=-all", sys.executable, "-c", LOWER)
        done = subprocess.run([*program, str(pid), "487"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (adj(pid), done.returncode) == ((487, 0) if lowered else (BY_REQUEST, 1)), done.stderr
        assert lowered or "cannot be lowered to 487: Permission denied" in done.stderr


def has(capability: int) -> bool:
    told = Path("/proc/self/status").read_text().splitlines()
    return bool(next(int(line.split()[1], 16) for line in told if line.startswith("CapEff:")) >> capability & 1)
