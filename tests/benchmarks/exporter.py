"""What the exporter costs on a crowded node: `python -m tests.benchmarks.exporter`, as root, with a C compiler.

The real program from its zipapp, in a process of its own: 200 pods of the size that real ones have, from an API server
on loopback, each with a process in a control group of its own, all on one device of the fake NVML that the tests build.
It is scraped as often as Prometheus and the watchdog do together. The table goes into docs/benchmarks.md.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agents.runtime import exposition
from components.base import zipapp
from tenancy.names import METRIC_POD_USED
from tests.support.api_server import ServedOverTls, make_certificates, serve
from tests.support.fake_cluster import NAMES, SYSTEM, T4, TOKEN, FakeCluster
from toolchain.cluster import fake_nvml

PODS = 200
WARM_SECONDS, SECONDS = 20, 60
SCRAPE_SECONDS = 3  # every 5 s by the watchdog, every 10 s by the gate, every 30 s by Prometheus
MIB = 2**20
GROUPS = Path("/sys/fs/cgroup")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.exporter", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the exporter")
    python = parser.parse_args().python
    with tempfile.TemporaryDirectory() as folder, processes() as running:
        served = api(Path(folder), running)
        with exporter(python, Path(folder), served, running) as (process, port):
            usage(process.pid, port, WARM_SECONDS)
            before = len(served.cluster.requests)
            cpu, size = usage(process.pid, port, SECONDS)
            asked = len(served.cluster.requests) - before
            memory = status(process.pid)
        print("| pods | Python | RSS, MiB | peak, MiB | CPU, millicores | /metrics, KiB | requests a minute |")
        print("|---|---|---|---|---|---|---|")
        version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
        rss, peak = (f"{memory[name] / 1024:.1f}" for name in ("VmRSS", "VmHWM"))
        print(f"| {PODS} | {version} | {rss} | {peak} | {cpu:.1f} | {size / 1024:.0f} | {asked} |")


@contextlib.contextmanager
def processes() -> Iterator[dict[int, tuple[str, str]]]:
    """A process for each pod, as pid: (pod uid, container id), in the group that a kubelet would give it."""
    hierarchy = GROUPS if (GROUPS / "cgroup.controllers").exists() else GROUPS / "pids"
    top = hierarchy / f"gpu-tenancy-bench-{os.getpid()}"
    started, groups = {}, {}
    try:
        for _ in range(PODS):
            pod, container = str(uuid.uuid4()), uuid.uuid4().hex * 2
            group = top / f"pod{pod}" / container
            group.mkdir(parents=True)
            process = subprocess.Popen(["sleep", "infinity"])
            groups[process] = group
            (group / "cgroup.procs").write_text(str(process.pid))
            started[process.pid] = (pod, container)
        yield started
    finally:
        for process in groups:
            process.kill()
            process.wait()
        for path, _, _ in os.walk(top, topdown=False):
            os.rmdir(path)


def api(folder: Path, running: Mapping[int, tuple[str, str]]) -> ServedOverTls:
    make_certificates(folder)
    (folder / "token").write_text(TOKEN)
    cluster = FakeCluster(watches_last=True, pods=[pod(*ids, number) for number, ids in enumerate(running.values())])
    cluster.add_ledger(T4)
    cluster.add_node()
    server, _ = serve(cluster, folder)
    return ServedOverTls(cluster=cluster, port=server.server_address[1], mount=folder)


def pod(uid: str, container: str, number: int) -> dict[str, Any]:
    """About 7 KiB as JSON, what a pod with probes, variables and managed fields has."""
    environment = [{"name": f"SETTING_{i}", "value": "x" * 60} for i in range(40)]
    managed = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {f"f:field-{i}": {} for i in range(60)}}]
    limits = {NAMES.gpumem: "70", "cpu": "1", "memory": "1Gi"}
    return {
        "metadata": {"namespace": f"team-{number % 20}", "name": f"pod-{number}", "uid": uid, "managedFields": managed},
        "spec": {
            "nodeName": "k8s-node1",
            "containers": [{"name": "main", "env": environment, "resources": {"limits": limits, "requests": limits}}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{container}"}],
        },
    }


@contextlib.contextmanager
def exporter(
    python: str, folder: Path, served: ServedOverTls, running: Mapping[int, tuple[str, str]]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    if not fake_nvml.build(folder):
        raise SystemExit("a C compiler is needed")
    used = PODS * 60 * MIB
    lines = ["0", f"device GPU-1 {15360 * MIB} {15360 * MIB - used} {used}"]
    (folder / "card").write_text("\n".join([*lines, *(f"compute {pid} {60 * MIB}" for pid in running)]) + "\n")
    archive = folder / "agents.pyz"
    archive.write_bytes(zipapp.build_for_nodes().content)
    with socket.create_server(("", 0)) as probe:
        port = probe.getsockname()[1]
    environ = {
        **served.environ(),
        "LD_LIBRARY_PATH": str(folder),
        "PORT": str(port),
        "INTERVAL_SECONDS": "5",
        "NODE_NAME": "k8s-node1",
        "LEDGER_NAMESPACE": SYSTEM,
        "PUBLISH_DEVICES": "true",
    }
    with subprocess.Popen([python, "-I", archive, "exporter"], env=environ, stdout=subprocess.DEVNULL) as process:
        try:
            until_it_listens(port)
            yield process, port
        finally:
            process.send_signal(signal.SIGTERM)


def until_it_listens(port: int) -> None:
    for _ in range(300):
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise SystemExit("the exporter does not listen")


def usage(pid: int, port: int, seconds: float) -> tuple[float, int]:
    """Millicores over so many seconds of scrapes, and the bytes of the last answer, which shows every pod."""
    began, before, body = time.monotonic(), cpu_seconds(pid), b""
    while time.monotonic() - began < seconds:
        time.sleep(SCRAPE_SECONDS)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            body = answer.read()
    named = [s for s in exposition.parse(body.decode()) if s.name == METRIC_POD_USED and s.labels["pod"]]
    assert len(named) == PODS, len(named)
    return 1000 * (cpu_seconds(pid) - before) / (time.monotonic() - began), len(body)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status(pid: int) -> dict[str, int]:
    """KiB by name."""
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {line[0].rstrip(":"): int(line[1]) for line in lines if line[-1] == "kB"}


if __name__ == "__main__":
    main()
