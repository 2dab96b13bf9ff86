"""The watchdog tells what it sees, and that it does nothing."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agents import watchdog
from agents.api import ApiError
from agents.telemetry import NodeTelemetry
from agents.watchdog import Blind, DeviceVerdict, Settings, decide
from tests.agents.cluster import SYSTEM, T4, Fault, Served
from tests.agents.exporters import card, measured

SETTINGS = Settings(
    ledger_namespace=SYSTEM,
    exporter_namespace="nodes",
    exporter_port=0,
    dry_run=True,
    interval_seconds=5,
    run_seconds=20,
    minimum_age_seconds=120,
    cool_down_seconds=600,
    evictions_per_hour=6,
)


@pytest.fixture
def pressed(served: Served) -> Iterator[Served]:
    """A node whose exporter shows 1 GiB free."""
    with measured(served, card(1024)):
        yield served


def run(served: Served) -> int:
    settings = replace(SETTINGS, exporter_port=served.exporter_port)
    return watchdog.run(settings, served.api(), served.time.clock(), served.log())


@pytest.mark.parametrize(("free_mib", "pressed"), [(1536, False), (1535, True), (0, True), (15360, False)])
def test_a_device_is_pressed_below_its_floor(free_mib: int, pressed: bool) -> None:
    (verdict,) = decide([NodeTelemetry(pool=T4, node="n", devices=(card(free_mib),))])
    assert isinstance(verdict, DeviceVerdict)
    assert (verdict.free_mib, verdict.floor_mib, verdict.pressed) == (free_mib, 1536, pressed)


def test_each_device_is_judged_on_its_own() -> None:
    verdicts = decide([NodeTelemetry(pool=T4, node="n", devices=(card(100), card(9000, gpu=1)))])
    assert [verdict.pressed for verdict in verdicts if isinstance(verdict, DeviceVerdict)] == [True, False]


def test_a_node_without_telemetry_is_named_and_not_judged() -> None:
    assert decide([NodeTelemetry(pool=T4, node="n", problem="HTTP 503")]) == (Blind(node="n", problem="HTTP 503"),)


def test_a_pass_reports_each_device_and_a_summary(pressed: Served) -> None:
    assert run(pressed) == 0
    device, summary = pressed.lines()[1:3]
    assert device["level"] == "warning"
    assert device["message"] == "under pressure; without telemetry by pod no offender is known"
    assert (device["node"], device["gpu"], device["free_mib"], device["floor_mib"]) == ("k8s-node1", 0, 1024, 1536)
    assert (summary["message"], summary["devices"], summary["under_pressure"]) == ("no action", 1, 1)
    assert pressed.time.slept == [5.0, 5.0, 5.0]
    assert {method for method, _ in pressed.cluster.requests} == {"GET"}


def test_a_missing_exporter_is_told_of_by_node(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    assert run(served) == 0
    blind, summary = served.lines()[1:3]
    assert (blind["message"], blind["node"]) == ("no action: no telemetry", "k8s-node1")
    assert summary["nodes_without_telemetry"] == 1


def test_without_a_ledger_there_is_nothing_to_do(served: Served) -> None:
    assert run(served) == 0


def test_missing_rights_end_the_run(pressed: Served) -> None:
    pressed.cluster.faults = [Fault("GET", "/api/v1/nodes", 403, "Forbidden", "cannot list nodes")]
    with pytest.raises(ApiError, match="cannot list nodes"):
        run(pressed)


@pytest.mark.parametrize(("failures", "status"), [(4, 0), (999, 1)])
def test_the_last_pass_decides_the_heartbeat(pressed: Served, failures: int, status: int) -> None:
    pressed.cluster.faults = [Fault("GET", "/api/v1/nodes", 503, times=failures)]
    assert run(pressed) == status
