"""Measures the cost of the demand gate on a large cluster (`python -m tests.benchmarks.gate [--nodes 200]`).

The gate is a real process, and a fake API server serves nodes, pods and exporters. The benchmark compares the gate with
watches to the gate without watches. It fails if the gate with watches needs more than 10 % of the bytes or 2/5 of the
CPU seconds. The table is in docs/choosing/benchmarks.md.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from agents.kube.nodes import NODES
from agents.kube.pods import PODS
from agents.runtime.http_message import SAMPLES, HttpResponse
from components.agents.gate import GATE_RUN_SECONDS, OnDemandSpec, gates
from tenancy.ledger import Seat
from tests.support.api_server import QuietServer, ServedOverTls, make_certificates, served_over_tls
from tests.support.curves import Use, answer
from tests.support.exporters import add_exporter
from tests.support.fake_cluster import NAMES, SYSTEM, T4, FakeCluster, Fault
from tests.support.gating import TTS, add_deployment, add_journal
from tests.support.paths import ROOT

PODS_A_NODE, SEAT_MIB = 10, 1000
VARIABLES = [{"name": f"SETTING_{number}", "value": "x" * 120} for number in range(40)]
MOST_OF_BYTES, MOST_OF_CPU = 0.1, 2 / 5
_CHUNK = 2**16


@dataclass
class Meter:
    server_port: int
    received_bytes: int = 0
    listening: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @contextmanager
    def serving(self) -> Iterator[int]:
        threading.Thread(target=self._accept, daemon=True).start()
        yield self.listening.getsockname()[1]
        self.listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the function `serving` has closed the socket
            while True:
                near, _ = self.listening.accept()
                far = socket.create_connection(("127.0.0.1", self.server_port))
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._copy, args=(near, far), daemon=True).start()
                threading.Thread(target=self._copy, args=(far, near, True), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, counted: bool = False) -> None:
        with sink, suppress(OSError):  # the thread for the other direction has closed both sockets
            while chunk := source.recv(_CHUNK):
                self.received_bytes += len(chunk) if counted else 0
                sink.sendall(chunk)


@dataclass(frozen=True, kw_only=True)
class Cost:
    cpu_seconds: float
    mb: float
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
    parser.add_argument("--nodes", type=int, default=200)
    nodes = parser.parse_args().nodes
    print(f"| {nodes} nodes, {nodes * PODS_A_NODE} pods, one run | CPU seconds | MB | peak MiB | requests |")
    print("|---|---|---|---|---|")
    lists, watches = (measured(nodes, watches=each) for each in (False, True))
    for name, cost in (("lists at each sample", lists), ("watches", watches)):
        print(f"| {name} | {cost.cpu_seconds:.1f} | {cost.mb:.1f} | {cost.peak_mib:.0f} | {cost.requests} |")
    if watches.mb > MOST_OF_BYTES * lists.mb or watches.cpu_seconds > MOST_OF_CPU * lists.cpu_seconds:
        raise SystemExit(f"more than {MOST_OF_BYTES:.0%} of the bytes, or {MOST_OF_CPU:.0%} of the CPU seconds")


def measured(nodes: int, *, watches: bool) -> Cost:
    cluster = filled(nodes)
    cluster.watches_last = True
    if not watches:
        cluster.faults = [Fault("GET", f"{path}?watch", 403, "Forbidden", times=10_000) for path in (NODES, PODS)]
    with tempfile.TemporaryDirectory() as folder, scraped(nodes) as port:
        make_certificates(Path(folder))
        with served_over_tls(cluster, Path(folder), Path(folder)) as served:
            meter = Meter(served.port)
            with meter.serving() as metered, changing(cluster):
                cpu_seconds, peak_mib = run(served, metered, port)
            return Cost(
                cpu_seconds=cpu_seconds,
                mb=meter.received_bytes / 1e6,
                peak_mib=peak_mib,
                requests=len(cluster.requests),
            )


def run(served: ServedOverTls, api_port: int, exporter_port: int) -> tuple[float, float]:
    on_demand = {"tts": OnDemandSpec(tenant=TTS.namespace, pool=T4.name, need_mib=10_000)}
    environ = {
        **os.environ,
        **served.environ(),
        "KUBERNETES_SERVICE_PORT": str(api_port),
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
def changing(cluster: FakeCluster) -> Iterator[None]:
    ended = threading.Event()

    def change() -> None:
        while not ended.wait(1.0):
            pod = cluster.pods[-1]
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
