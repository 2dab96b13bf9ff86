"""Attacks the exporter, guard and extender with 3,000 slow connections, oversized requests and many requests."""

import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.runtime import exposition
from agents.runtime.exposition import Sample
from tenancy.names import METRIC_SAMPLE_AGE
from tests.support import flood
from tests.support.api_server import ServedOverTls
from tests.support.extenders import publish, running
from tests.support.fake_cluster import T4
from tests.support.flood import SWEEPING, Cost, cost
from tests.support.paths import ROOT
from tests.support.shipped_exporter import shipped_exporter
from toolchain.cluster.fake_nvml import FakeNvml
from toolchain.cluster.process import free_ports

ROUNDS = 60
SETTLED_SECONDS = 4.0  # After this many seconds, all connections of the attacker are open.
# Sources: components/base/agent.py and components/agents/scheduler.py.
NODE_AGENT_MIB, EXTENDER_MIB = 64, 256
NOISE_SECONDS = 0.01
PATIENCE_SECONDS = 60.0


def timed(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
        time.sleep(0.02)
    return statistics.median(seconds)


def under_attack(pid: int, port: int, seconds: Callable[[], float], sources: int = 1) -> tuple[Cost, Cost]:
    before, pairs = cost(pid), []
    for _ in range(3):
        usual = seconds()
        with flood.attacked(port, sources=sources):
            time.sleep(SETTLED_SECONDS)
            pairs.append((usual, seconds()))
            during = cost(pid)
        if pairs[-1][1] < 2 * usual + NOISE_SECONDS:
            return before, during
    pytest.fail(f"seconds of the work, usually and under the attack: {pairs}")


def samples(port: int) -> list[Sample]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
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


@pytest.mark.parametrize("sources", [1, 100])
def test_the_exporter_is_scraped_and_reads_on_under_an_attack(
    served: ServedOverTls, node_zipapp: Path, nvml: FakeNvml, sources: int
) -> None:
    nvml.show(f"device GPU-11111111-aaaa {15 * 2**30} {4 * 2**30} {11 * 2**30}")
    with shipped_exporter(served, node_zipapp, nvml) as exporter:
        until(lambda: serves(exporter.port))
        age: list[float] = []

        def scrape() -> None:
            age.extend(each.value for each in samples(exporter.port) if each.name == METRIC_SAMPLE_AGE)

        pid, port = exporter.process.pid, exporter.port
        before, during = under_attack(pid, port, lambda: timed(scrape), sources)
        assert statistics.median(age) < 3, "NVML is not read"
        assert during.peak_mib < min(NODE_AGENT_MIB, before.peak_mib + 16)
        assert during.threads <= before.threads
        assert during.descriptors < before.descriptors + 70


def test_the_guard_works_on_under_an_attack() -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-c", SWEEPING, str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as guard:

        def passes() -> float:
            assert guard.stdout is not None
            assert serves(port)
            lines = [guard.stdout.readline().split(maxsplit=1) for _ in range(2 * ROUNDS)][ROUNDS:]
            assert {problem for _, problem in lines} == {"None\n"}
            return statistics.median(float(seconds) for seconds, _ in lines)

        try:
            until(lambda: serves(port))
            before, during = under_attack(guard.pid, port, passes)
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

        before, during = under_attack(extender.process.pid, extender.http_port, lambda: timed(place))
        assert during.peak_mib < min(EXTENDER_MIB, before.peak_mib + 24)
        assert during.threads <= before.threads + 2
