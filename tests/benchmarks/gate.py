"""Measures what other pods cost the demand gate (`python -m tests.benchmarks.gate [--nodes 64] [--others 5000]
[--events 120]`).

The gate is a real process, and a fake API server serves nodes, pods and exporters. The benchmark compares a cluster
with other pods and their events to the same cluster without them. It fails if the gate needs more than 1.2 times the
CPU seconds there. The figures are in docs/choosing/benchmarks.md.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from agents.kube.pods import PODS
from agents.runtime.http_message import SAMPLES, HttpResponse
from components.agents.gate import GATE_RUN_SECONDS, OnDemandSpec, gates
from tenancy.ledger import Seat
from tests.support.api_server import QuietServer, ServedOverTls, make_certificates, served_over_tls
from tests.support.curves import Use, answer
from tests.support.exporters import add_exporter
from tests.support.fake_cluster import NAMES, SYSTEM, T4, FakeCluster
from tests.support.gating import TTS, add_deployment, add_journal
from tests.support.paths import ROOT

PODS_A_NODE, SEAT_MIB = 10, 1000
VARIABLES = [{"name": f"SETTING_{number}", "value": "x" * 120} for number in range(40)]
MOST_TIMES_CPU = 1.2


@dataclass(frozen=True, kw_only=True)
class Cost:
    cpu_seconds: float
    peak_mib: float
    requests: int


class Exporter(BaseHTTPRequestHandler):
    scrapes = 0

    def do_GET(self) -> None:
        Exporter.scrapes += 1
        node = self.server.server_address[0]
        uses = [
            Use(namespace="n", pod=f"seat-{number}", uid=uid(str(node), number), mib=900)
            for number in range(PODS_A_NODE)
        ]
        body = answer(uses, age_seconds=1 + Exporter.scrapes % 997 / 1000).encode()
        self.wfile.write(HttpResponse(200, body, SAMPLES).encoded(last=True))

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


def address(node: int) -> str:
    return f"127.1.{node // 250}.{1 + node % 250}"


def uid(node_address: str, seat: int) -> str:
    return f"uid-{node_address}-{seat}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gate", description=__doc__)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--others", type=int, default=5000, help="pods without a GPU")
    parser.add_argument("--events", type=int, default=120, help="events of these pods in a second")
    given = parser.parse_args()
    print(f"| {given.nodes} nodes, {given.nodes * PODS_A_NODE} GPU pods, one run | CPU seconds | peak MiB | requests |")
    print("|---|---|---|---|")
    quiet, busy = measured(given.nodes), measured(given.nodes, given.others, given.events)
    for name, cost in (("quiet", quiet), (f"{given.others} other pods, {given.events} events a second", busy)):
        print(f"| {name} | {cost.cpu_seconds:.2f} | {cost.peak_mib:.0f} | {cost.requests} |")
    times = busy.cpu_seconds / quiet.cpu_seconds
    print(f"{times:.2f} times the CPU seconds of the quiet cluster, at most {MOST_TIMES_CPU}")
    if times > MOST_TIMES_CPU:
        raise SystemExit(1)


def measured(nodes: int, others: int = 0, events: int = 0) -> Cost:
    cluster = filled(nodes)
    cluster.watches_last = True
    seat = cluster.pods[-1]
    strangers = [add_other(cluster, number, nodes) for number in range(others)]
    with tempfile.TemporaryDirectory() as folder, scraped(nodes) as port:
        make_certificates(Path(folder))
        with served_over_tls(cluster, Path(folder), Path(folder)) as served:
            with changing(cluster, [seat], 1), changing(cluster, strangers, events):
                cpu_seconds, peak_mib = run(served, port)
            return Cost(cpu_seconds=cpu_seconds, peak_mib=peak_mib, requests=len(cluster.requests))


def add_other(cluster: FakeCluster, number: int, nodes: int) -> dict[str, Any]:
    """Adds a pod without a GPU. A third of these pods is on the nodes with devices."""
    name = f"other-{number}"
    cluster.add_pod(name, f"node-{number % (3 * nodes)}", "0")
    pod = cluster.pods[-1]
    pod["metadata"]["labels"] = {"app": name}
    pod["spec"]["containers"][0] = {"name": "main", "env": VARIABLES}
    return pod


def run(served: ServedOverTls, exporter_port: int) -> tuple[float, float]:
    on_demand = {"tts": OnDemandSpec(tenant=TTS.namespace, pool=T4.name, need_mib=10_000)}
    environ = {
        **os.environ,
        **served.environ(),
        "POD_NAME": "bench",
        "LEDGER_NAMESPACE": SYSTEM,
        "EXPORTER_NAMESPACE": "nodes",
        "EXPORTER_PORT": str(exporter_port),
        "DRY_RUN": "false",
        "INTERVAL_SECONDS": "5",  # as components/agents/gate.py sets it
        "RUN_SECONDS": str(GATE_RUN_SECONDS),
        "STARTING_SECONDS": "300",
        "GATES": json.dumps(gates(on_demand)),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "agents", "gate"], cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines, peak_mib = [], 0.0
    for line in process.stdout:
        lines.append(line)
        found = re.search(r"VmHWM:\s+(\d+)", Path("/proc", str(process.pid), "status").read_text())
        peak_mib = int(found[1]) / 2**10 if found else peak_mib
    _, status, usage = os.wait4(process.pid, 0)
    if status or not any('"keep"' in line for line in lines):
        raise SystemExit("".join(lines[-5:]))
    return usage.ru_utime + usage.ru_stime, peak_mib


def filled(nodes: int) -> FakeCluster:
    cluster = FakeCluster()
    seats = tuple(
        Seat(name=f"seat-{number}", tenant=f"tenant-{number}", pool=T4.name, gpumem_mib=SEAT_MIB, replicas=PODS_A_NODE)
        for number in range(nodes)
    )
    cluster.add_ledger(replace(T4, nodes=nodes), seats=seats)
    add_journal(cluster)
    add_deployment(cluster, TTS)
    for number in range(nodes):
        node = f"node-{number}"
        cluster.add_node(node, gpumem="14k", gpu_count="14k")
        add_exporter(ServedOverTls(cluster=cluster, mount=Path(), port=0), node, address(number))
        cluster.pods[-1]["spec"]["containers"] = [{"name": "main", "env": VARIABLES}]
        for seat in range(PODS_A_NODE):
            cluster.add_pod(f"seat-{number}-{seat}", node, str(SEAT_MIB))
            pod = cluster.pods[-1]
            pod["metadata"] |= {"namespace": f"tenant-{number}", "uid": uid(address(number), seat)}
            pod["metadata"] |= {"annotations": {NAMES.device_uuid: "GPU-0"}}
            pod["spec"]["containers"][0]["env"] = VARIABLES
            pod["status"]["startTime"] = "2026-06-02T06:00:00Z"
    return cluster


@contextmanager
def changing(cluster: FakeCluster, pods: Sequence[dict[str, Any]], events: int) -> Iterator[None]:
    """Changes one of the pods after the other, so that there are `events` events in a second."""
    ended = threading.Event()

    def change() -> None:
        due = time.monotonic()
        for pod in itertools.cycle(pods if events else ()):
            due += 1 / events
            if ended.wait(max(due - time.monotonic(), 0)):
                return
            pod["metadata"]["resourceVersion"] = cluster.next_version()
            cluster.tell("MODIFIED", PODS, pod)

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


@contextmanager
def scraped(nodes: int) -> Iterator[int]:
    servers: list[QuietServer] = []
    for node in range(nodes):
        port = servers[0].server_address[1] if servers else 0
        servers.append(QuietServer((address(node), port), Exporter))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 1.0}, daemon=True).start()
    yield servers[0].server_address[1]
    with ThreadPoolExecutor(nodes) as threads:
        list(threads.map(QuietServer.shutdown, servers))
    for server in servers:
        server.server_close()


if __name__ == "__main__":
    main()
