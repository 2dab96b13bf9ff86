"""The alerts on the driver's caps, in Prometheus' own rule tests: within a minute, and never for a restart."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from components.monitoring.component import prometheus_rule
from tenancy.ledger import Enforce
from tests.integration.monitoring.test_alerts import ARGS, LEDGER, NORMAL, T4, rules
from tests.support import alerting
from tests.support.alerting import FAULT, TimeLine

CAPPED = replace(ARGS, ledger=replace(ARGS.ledger, pools=(replace(T4, enforce=Enforce.DRIVER), *LEDGER.pools[1:])))
POD = 'node="a",namespace="chat",pod="chat-0",pod_uid="u",container="c",gpu="0",uuid="GPU-a"'
HELD = f"gpu_container_memory_capped{{{POD}}}"
ABLE = 'gpu_device_memory_cap_able{node="a",gpu="0",uuid="GPU-a"}'
Values = Callable[[int], float | None]


def from_fault(value: float, *, seconds: int = 10**6) -> Values:
    return lambda second: value if FAULT < second <= FAULT + seconds else None


def until_fault(value: float) -> Values:
    return lambda second: value if second <= FAULT else None


def line(tmp_path: Path, changed: dict[str, Values]) -> TimeLine:
    well = NORMAL | {HELD: lambda second: 1.0, ABLE: lambda second: 1.0}
    return TimeLine(rules=prometheus_rule(CAPPED)["spec"], series=well | changed, folder=tmp_path)


@pytest.fixture(scope="module", autouse=True)
def promtool() -> str:
    return alerting.promtool()


def uncapped(reason: str) -> dict[str, Values]:
    series = HELD.replace("}", f',reason="{reason}"}}')
    return {HELD: until_fault(1.0), series: from_fault(0.0)}


def test_a_container_that_is_no_longer_held_is_alerted_on_within_a_minute(tmp_path: Path) -> None:
    """The scrape is up to 15 s after the reading, which is up to 5 s after the fault."""
    found = line(tmp_path, uncapped("no-limit"))
    found.assert_quiet_before()
    seconds = found.seconds_until("GpuCapMissing")
    assert seconds is not None
    assert seconds <= 40


def test_a_restart_that_one_scrape_sees_is_no_alert(tmp_path: Path) -> None:
    lost = HELD.replace("}", ',reason="no-cgroup"}')
    found = line(tmp_path, {lost: from_fault(0.0, seconds=15)})
    assert found.seconds_until("GpuCapMissing") is None


def test_a_node_that_cannot_is_alerted_on(tmp_path: Path) -> None:
    unable = ABLE.replace("}", ',reason="cgroup-v1"}')
    found = line(tmp_path, {ABLE: until_fault(1.0), unable: from_fault(0.0)})
    assert found.seconds_until("GpuCapUnable") is not None


def test_where_no_pool_enforces_there_is_nothing_to_miss() -> None:
    assert not [rule for rule in rules(ARGS) if rule["alert"].startswith("GpuCapMissing")]
    assert {"GpuCapMissing", "GpuCapUnable"} <= {rule["alert"] for rule in rules(CAPPED)}
