"""Exporter, guard and extender under 3,000 slow connections, oversized requests and a flood from another process."""

import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.runtime import exposition
from agents.runtime.exposition import Sample
from tenancy.names import METRIC_SAMPLE_AGE
from tests.support import flood
from tests.support.api_server import ServedOverTls
from tests.support.extenders import publish, running
from tests.support.fake_cluster import T4
from tests.support.fake_nvml import FakeNvml
from tests.support.paths import ROOT
from tests.support.shipped_exporter import shipped_exporter
from toolchain.cluster.process import free_ports

ROUNDS = 60
SETTLED_SECONDS = 4.0  # by then the attacker has opened what it wants
# Of these agents' containers (components/base/agent.py, components/agents/scheduler.py), in MiB.
NODE_AGENT_MIB, EXTENDER_MIB = 64, 256
# What a busy machine alone adds now and then to what takes a millisecond.
NOISE_SECONDS = 0.01
PATIENCE_SECONDS = 60.0
ONE_SOURCE, MANY_SOURCES = 1, 100


@dataclass(frozen=True)
class Cost:
    """Of a process: MiB at its peak, threads, descriptors."""

    peak_mib: float
    threads: int
    descriptors: int


def cost(pid: int) -> Cost:
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    status = {line[0]: line[1] for line in lines if len(line) > 1}
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Cost(int(status["VmHWM:"]) / 1024, int(status["Threads:"]), descriptors)


def timed(work: Callable[[], object]) -> float:
    """The median of its seconds."""
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
        time.sleep(0.02)
    return statistics.median(seconds)


def at_most(usual: float) -> float:
    """Seconds of what usually takes so long, under an attack."""
    return 2 * usual + NOISE_SECONDS


def samples(port: int) -> list[Sample]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return list(exposition.parse(answer.read().decode()))


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def serves(port: int) -> bool:
    try:
        return bool(samples(port))
    except OSError:
        return False


@contextmanager
def attacked(port: int, sources: int) -> Iterator[None]:
    with flood.attacked(port, sources=sources):
        time.sleep(SETTLED_SECONDS)
        yield


@pytest.mark.parametrize("sources", [ONE_SOURCE, MANY_SOURCES])
def test_the_exporter_is_scraped_and_reads_on_under_an_attack(
    served: ServedOverTls, node_zipapp: Path, nvml: FakeNvml, sources: int
) -> None:
    nvml.show(f"device GPU-11111111-aaaa {15 * 2**30} {4 * 2**30} {11 * 2**30}")
    with shipped_exporter(served, node_zipapp, nvml) as exporter:
        until(lambda: serves(exporter.port))
        usual, before = timed(lambda: samples(exporter.port)), cost(exporter.process.pid)
        with attacked(exporter.port, sources):
            assert timed(lambda: samples(exporter.port)) < at_most(usual)
            (age,) = [each.value for each in samples(exporter.port) if each.name == METRIC_SAMPLE_AGE]
            during = cost(exporter.process.pid)
        assert age < 3, "NVML is not read"
        assert during.peak_mib < min(NODE_AGENT_MIB, before.peak_mib + 16)
        assert during.threads <= before.threads
        assert during.descriptors < before.descriptors + 70


# The guard's own sweep over this machine's processes, and its server; it prints what each sweep took.
SWEEPING = """
import resource, sys, threading, time
from pathlib import Path

from agents.guard.main import Sweeper
from agents.guard.processes import ProcessIndex
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.open_server import MetricsServer

# The soft limit that most container runtimes give.
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

class Follower:
    last, age_seconds = {}, 0.0

clock = Clock()
census = ProcessIndex(clock, Path("/proc")).take
sweeper = Sweeper(census=census, hold=None, follower=Follower(), clock=clock, log=Log("guard", sys.stderr))

def sweep():
    while True:
        began = time.perf_counter()
        sweeper.sweep()
        print(time.perf_counter() - began, sweeper.last.problem, flush=True)
        time.sleep(0.05)

threading.Thread(target=sweep, daemon=True).start()
with MetricsServer(int(sys.argv[1]), sweeper) as server:
    server.serve_forever()
"""


def sweeps(process: "subprocess.Popen[str]") -> Sequence[float]:
    """Seconds of each of the next ones, which find no problem."""
    assert process.stdout is not None
    lines = [process.stdout.readline().split(maxsplit=1) for _ in range(ROUNDS)]
    assert {problem for _, problem in lines} == {"None\n"}
    return [float(seconds) for seconds, _ in lines]


def test_the_guard_sweeps_on_under_an_attack() -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-c", SWEEPING, str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as guard:
        try:
            until(lambda: serves(port))
            usual, before = statistics.median(sweeps(guard)), cost(guard.pid)
            with attacked(port, ONE_SOURCE):
                sweeps(guard)  # those that were printed meanwhile
                assert statistics.median(sweeps(guard)) < at_most(usual)
                assert serves(port)
                during = cost(guard.pid)
            assert during.peak_mib < min(NODE_AGENT_MIB, before.peak_mib + 16)
            assert during.threads == before.threads
        finally:
            guard.kill()


def test_the_extender_places_on_under_an_attack(served: ServedOverTls, zipapp: Path, tmp_path: Path) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node("k8s-node1")
    publish(served.cluster, 15360)
    with running(served, zipapp, tmp_path) as extender:

        def place() -> None:
            assert extender.filter(1000)["NodeNames"] == ["k8s-node1"]

        usual, before = timed(place), cost(extender.process.pid)
        with attacked(extender.http_port, ONE_SOURCE):
            assert timed(place) < at_most(usual)
            assert json.loads(extender.get("/inspect")[1])["nodes"]
            during = cost(extender.process.pid)
        assert during.peak_mib < min(EXTENDER_MIB, before.peak_mib + 24)
        assert during.threads <= before.threads + 2  # of the last verbs
