"""Tests `advise --host-memory` with a real Prometheus."""

import re
import time
from collections.abc import Iterator

import pytest

from gpumem import cli, host_memory
from tenancy.host_memory.history import UsageSample
from tests.support.memory_pools import NODE_4
from tests.support.remembering import prometheus


def read(source: str, days: int = 7) -> list[UsageSample]:
    return host_memory.read(source, [NODE_4], days=days)["node-4"]


WORKING_SET = "container_memory_working_set_bytes"
MINUTES = 180


def cadvisor(namespace: str, pod: str, container: str, mib: int) -> Iterator[tuple[str, int]]:
    for name in (container, ""):
        yield f'{WORKING_SET}{{namespace="{namespace}",pod="{pod}",container="{name}"}}', mib * 2**20


# The workload inference has two pods. One container is at its peak for five minutes.
USUAL = dict(
    (
        *cadvisor("inference", "inference-7d9-x", "main", 3000),
        *cadvisor("inference", "inference-7d9-x", "sidecar", 500),
        *cadvisor("inference", "inference-7d9-y", "main", 1500),
        *cadvisor("inference", "inferences-0", "main", 40_000),
        *cadvisor("other", "inference-0", "main", 40_000),
        *cadvisor("inference", "embeddings-0", "main", 5000),
        *cadvisor("signoz", "clickhouse", "main", 4900),
    )
)
PEAK = dict(cadvisor("inference", "inference-7d9-x", "main", 18_000))


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    first = (int(time.time()) - MINUTES * 60) // 60 * 60
    lines = [f"# TYPE {WORKING_SET} gauge"]
    for series, usual in USUAL.items():
        for minute in range(MINUTES):
            size = PEAK.get(series, usual) if 60 <= minute < 65 else usual
            lines.append(f"{series} {size} {first + minute * 60}")
    with prometheus(tmp_path_factory.mktemp("prometheus"), lines) as address:
        yield address


def test_a_real_prometheus_tells_what_the_pods_of_a_workload_held_together(remembering: str) -> None:
    held = [sample.mib for sample in read(remembering, days=1) if sample.workload == "inference"]
    assert min(held) == 5000
    assert max(held) == 20_000
    assert held.count(5000) >= MINUTES - 15
    assert held.count(20_000) == 5


def test_prods_report_is_read_from_a_real_prometheus(remembering: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise", "--host-memory", "--stack", "prod", "--from", remembering, "--days", "1"], {}) == 0
    text = capsys.readouterr().out
    assert "together at most 29900 of 62464 MiB" in text
    assert re.search(r"^inference +5000 +5120 +20000 +20480$", text, re.MULTILINE)
