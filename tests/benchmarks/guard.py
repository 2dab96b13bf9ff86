"""What the guard costs on a crowded node: `python -m tests.benchmarks.guard`, as root.

The real program from its zipapp, in a process of its own, on a node of 200 pods with five processes each, a tenth of
them protected; one protected container starts again each second. The table goes into docs/benchmarks.md.
"""

import argparse
import contextlib
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.base import zipapp
from tests.benchmarks.exporter import GROUPS, cpu_seconds, status, until_it_listens
from tests.support.api_server import ServedOverTls, make_certificates, serve
from tests.support.fake_cluster import TOKEN, FakeCluster

PODS, PROCESSES, PROTECTED = 200, 5, 20
WARM_SECONDS, SECONDS = 15, 60
ADJ = 869


@dataclass
class Pod:
    """A pod with its control group and its processes."""

    group: Path
    uid: str
    protected: bool
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> int:
        """A process in a new container, with the value that the kubelet gives it."""
        container = self.group / f"pod{self.uid}" / (uuid.uuid4().hex * 2)
        container.mkdir(parents=True)
        process = subprocess.Popen(["sleep", "infinity"])
        (container / "cgroup.procs").write_text(str(process.pid))
        Path(f"/proc/{process.pid}/oom_score_adj").write_text(str(ADJ))
        self.processes.append(process)
        return process.pid

    def end(self) -> None:
        """The process that was there first."""
        process = self.processes.pop(0)
        process.kill()
        process.wait()

    def manifest(self, number: int) -> dict[str, Any]:
        """About 7 KiB as JSON, what a pod with variables and managed fields has."""
        limits = {"limits": {"memory": "8Gi"}}
        environment = [{"name": f"SETTING_{i}", "value": "x" * 60} for i in range(40)]
        managed = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {f"f:field-{i}": {} for i in range(60)}}]
        return {
            "metadata": {"namespace": "team", "name": f"pod-{number}", "uid": self.uid, "managedFields": managed},
            "spec": {
                "nodeName": "node-4",
                "priorityClassName": "critical" if self.protected else "other",
                "containers": [{"name": "main", "env": environment, "resources": limits}],
            },
            "status": {"phase": "Running"},
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.guard", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the guard")
    python = parser.parse_args().python
    with tempfile.TemporaryDirectory() as folder, pods() as running, guard(python, Path(folder), running) as process:
        time.sleep(WARM_SECONDS)
        began, before = time.monotonic(), cpu_seconds(process.pid)
        delays = list(restarts([pod for pod in running if pod.protected], began + SECONDS))
        cpu = 1000 * (cpu_seconds(process.pid) - before) / (time.monotonic() - began)
        memory = status(process.pid)
    version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    rss, peak = (f"{memory[name] / 1024:.1f}" for name in ("VmRSS", "VmHWM"))
    print("| pods | processes | Python | RSS, MiB | peak, MiB | CPU, millicores | held after, s | at most | restarts |")
    print("|---|---|---|---|---|---|---|---|---|")
    print(
        f"| {PODS} | {PODS * PROCESSES} | {version} | {rss} | {peak} | {cpu:.1f} | {statistics.median(delays):.2f} | "
        f"{max(delays):.2f} | {len(delays)} |"
    )


def restarts(protected: list[Pod], until: float) -> Iterator[float]:
    """Seconds from each start to its being held."""
    chance = random.Random(1)  # noqa: S311
    while time.monotonic() < until:
        pod = chance.choice(protected)
        pod.end()
        time.sleep(0.5 + chance.random())  # at any moment between two sweeps
        pid, began = pod.start(), time.monotonic()
        while int(Path(f"/proc/{pid}/oom_score_adj").read_text()) == ADJ:
            time.sleep(0.005)
        yield time.monotonic() - began


@contextlib.contextmanager
def pods() -> Iterator[list[Pod]]:
    hierarchy = GROUPS if (GROUPS / "cgroup.controllers").exists() else GROUPS / "pids"
    top = hierarchy / f"gpu-tenancy-bench-{os.getpid()}"
    made = [Pod(top, str(uuid.uuid4()), protected=number < PROTECTED) for number in range(PODS)]
    try:
        for pod in made:
            for _ in range(PROCESSES):
                pod.start()
        yield made
    finally:
        for pod in made:
            while pod.processes:
                pod.end()
        for path, _, _ in os.walk(top, topdown=False):
            os.rmdir(path)


@contextlib.contextmanager
def guard(python: str, folder: Path, running: list[Pod]) -> Iterator[subprocess.Popen[bytes]]:
    make_certificates(folder)
    (folder / "token").write_text(TOKEN)
    cluster = FakeCluster(pods=[pod.manifest(number) for number, pod in enumerate(running)], watches_last=True)
    server, _ = serve(cluster, folder)
    served = ServedOverTls(cluster=cluster, port=server.server_address[1], mount=folder)
    archive = folder / "agents.pyz"
    archive.write_bytes(zipapp.build_for_nodes().content)
    with socket.create_server(("", 0)) as probe:
        port = probe.getsockname()[1]
    environ = {
        **served.environ(),
        "PORT": str(port),
        "NODE_NAME": "node-4",
        "POD_NAME": "guard",
        "PROTECTED": "team/critical",
        "TOTAL_MIB": "16384",
        "VICTIM_OOM_SCORE_ADJ": "1000",
    }
    with subprocess.Popen([python, "-I", archive, "guard"], env=environ, stdout=subprocess.DEVNULL) as process:
        try:
            until_it_listens(port)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


if __name__ == "__main__":
    main()
