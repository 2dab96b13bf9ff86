"""What a flood costs the agents: `python -m tests.benchmarks.flood`, and `--root DIR` for another version's checkout.

Exporter and extender are the shipped archives, the guard is its sweep over this machine's processes next to its server.
Each is timed at its work, first alone, then under an attacker in a process of its own (tests/support/flood.py): 3,000
slow connections, opened again as they are closed, 300 whole requests a second, a tenth of them of 1 MiB. The table goes
into docs/benchmarks.md. The first rows are no agent: a loop that takes connections, reads each once, answers what is
whole and closes: as little as a server of one thread in Python can do.
"""

import argparse
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import flood
from tests.support.api_server import ServedOverTls, make_certificates, served_over_tls
from tests.support.extenders import publish, running
from tests.support.fake_cluster import T4, FakeCluster
from tests.support.flood import SWEEPING, cost
from tests.support.paths import ROOT
from tests.support.shipped_exporter import shipped_exporter
from toolchain.cluster import fake_nvml
from toolchain.cluster.fake_nvml import FakeNvml
from toolchain.cluster.process import free_ports

SETTLED_SECONDS, SECONDS, PATIENCE_SECONDS = 5.0, 8.0, 120.0
REOPEN = {"1,000 a second": 1000, "2,000": 2000, "4,000": 4000, "as fast as it can": 100_000}
# Prints the port, and serves one short page.
LOOP = """
import selectors, socket

page = b"HTTP/1.1 200 OK\\r\\nContent-Length: 4\\r\\nConnection: close\\r\\n\\r\\na 1\\n"
listener = socket.create_server(("127.0.0.1", 0), backlog=512)
listener.setblocking(False)
selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)
print(listener.getsockname()[1], flush=True)
while True:
    for key, _ in selector.select():
        try:
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            selector.unregister(key.fileobj)
            with key.fileobj as client:
                if client.recv(8192).endswith(b"\\r\\n\\r\\n"):
                    client.send(page)
        except OSError:
            pass
"""
BUILD = "from components.base import zipapp; import sys; sys.stdout.buffer.write(zipapp.{build}().content)"


@dataclass(frozen=True)
class Flooded:
    """An agent that runs: `work` is done once, and raises OSError where it cannot be."""

    name: str
    pid: int
    port: int
    work: Callable[[], float]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.flood", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout of the version that is attacked")
    root = parser.parse_args().root.resolve()
    # The soft limit that most container runtimes give; the attacker takes the hard one.
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    print("| agent | slow connections, opened again | peak, MiB | threads | descriptors | work, ms | ratio |")
    print("|---|---|---|---|---|---|---|")
    for start in (loop, exporter, guard, extender):
        for title, reopen in REOPEN.items():
            with tempfile.TemporaryDirectory() as folder, start(root, Path(folder)) as agent:
                row(agent, title, reopen)


def row(agent: Flooded, title: str, reopen: int) -> None:
    until_it_works(agent)
    usual, before = median(agent.work), cost(agent.pid)
    with flood.attacked(agent.port, reopen=reopen):
        time.sleep(SETTLED_SECONDS)
        attacked = median(agent.work)
        during = cost(agent.pid)
    pairs = (
        f"{before.peak_mib:.0f} to {during.peak_mib:.0f}",
        f"{before.threads} to {during.threads}",
        f"{before.descriptors} to {during.descriptors}",
        f"{usual * 1000:.1f} to " + (f"{attacked * 1000:.1f}" if attacked < math.inf else "none is done"),
        f"{attacked / usual:.1f}" if attacked < math.inf else "",
    )
    print(f"| {agent.name} | {title} | {' | '.join(pairs)} |", flush=True)


def until_it_works(agent: Flooded) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            agent.work()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def median(work: Callable[[], float]) -> float:
    """Seconds; infinity where most of it fails."""
    end, seconds = time.monotonic() + SECONDS, []
    while time.monotonic() < end:
        try:
            seconds.append(work())
        except OSError:
            seconds.append(math.inf)
        time.sleep(0.05)
    return statistics.median(seconds)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@contextmanager
def loop(root: Path, folder: Path) -> Iterator[Flooded]:
    command = [sys.executable, "-c", LOOP]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            port = int(started.stdout.readline())
            yield Flooded("a bare loop, a page", started.pid, port, lambda: timed(lambda: get(port)))
        finally:
            started.kill()


@contextmanager
def exporter(root: Path, folder: Path) -> Iterator[Flooded]:
    fake_nvml.build(folder)
    nvml = FakeNvml(folder, folder / "card")
    nvml.show(f"device GPU-1 {15 * 2**30} {4 * 2**30} {11 * 2**30}")
    with cluster(folder) as served, shipped_exporter(served, archive(root, folder, "build_for_nodes"), nvml) as process:
        yield Flooded("exporter, a scrape", process.process.pid, process.port, lambda: timed(lambda: get(process.port)))


@contextmanager
def extender(root: Path, folder: Path) -> Iterator[Flooded]:
    with cluster(folder) as served:
        served.cluster.add_ledger(T4)
        served.cluster.add_node("k8s-node1")
        publish(served.cluster, 15360)
        with running(served, archive(root, folder, "build"), folder) as started:
            yield Flooded(
                "extender, a filter", started.process.pid, started.http_port,
                lambda: timed(lambda: started.filter(1000)),
            )  # fmt: skip


@contextmanager
def guard(root: Path, folder: Path) -> Iterator[Flooded]:
    (port,) = free_ports(1)
    log = folder / "sweeps"
    command = [sys.executable, "-c", SWEEPING, str(port)]
    with log.open("w") as out, subprocess.Popen(command, cwd=root, stdout=out, stderr=subprocess.DEVNULL) as started:

        def last_sweep() -> float:
            *_, line, _ = log.read_text().split("\n")  # the last one may be half written
            seconds, problem = line.split(maxsplit=1)
            if problem != "None":
                raise OSError(problem)
            return float(seconds)

        try:
            while "\n" not in log.read_text():
                time.sleep(0.1)
            yield Flooded("guard, a sweep", started.pid, port, last_sweep)
        finally:
            started.kill()


@contextmanager
def cluster(folder: Path) -> Iterator[ServedOverTls]:
    certificates = folder / "certificates"
    certificates.mkdir()
    make_certificates(certificates)
    with served_over_tls(FakeCluster(watches_last=True), certificates, folder / "serviceaccount") as served:
        yield served


def archive(root: Path, folder: Path, build: str) -> Path:
    made = folder / f"{build}.pyz"
    command = [sys.executable, "-c", BUILD.format(build=build)]
    made.write_bytes(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout)
    return made


def get(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        body: bytes = answer.read()
        return body


if __name__ == "__main__":
    main()
