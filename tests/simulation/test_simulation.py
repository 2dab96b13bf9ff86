"""Tests the plans that once broke a promise, and properties of the simulation."""

from collections import Counter

import pytest

from tenancy import names
from tenancy.names import WATCHDOG
from tests.simulation.cases import CASES, Case
from tests.simulation.drawing import draw
from tests.simulation.plan import Entry, Plan
from tests.simulation.run import report, simulate
from tests.simulation.system import Shape


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.xfail(strict=True, reason=case.broke)) if case.open else case
        for case in CASES
    ],
    ids=str,
)
def test_a_plan_that_broke_a_promise_keeps_it(case: Case) -> None:
    result = simulate(case.plan)
    broken = [each for each in result.found if each.name == case.broke]
    assert not broken, report(result)


@pytest.mark.parametrize(
    "plan",
    [
        draw(7, days=0.25),
        Plan(
            shape=Shape(),
            entries=(
                Entry(600.0, "slow_api", {"latency": 12.0, "seconds": 900.0}),
                Entry(700.0, "restart", {"name": "frigate"}),
                Entry(900.0, "twice", {"agent": WATCHDOG, "seconds": 1800.0}),
                Entry(1600.0, "burst", {"name": "immich-ml", "mib": 3000, "seconds": 600.0, "lies": True}),
            ),
            days=0.03,
        ),
    ],
    ids=["drawn", "slow"],
)
def test_a_plan_gives_the_same_day_again(plan: Plan) -> None:
    first, second = (simulate(plan) for _ in range(2))
    assert [str(line) for line in first.timeline.lines] == [str(line) for line in second.timeline.lines]
    assert first.found == ()


def test_a_day_without_faults_keeps_every_promise_and_recycles_nobody() -> None:
    result = simulate(Plan(shape=Shape(), entries=(), days=1.0))
    assert result.found == (), report(result)
    assert result.timeline.seen["action: evicted"] == 0
    assert result.timeline.seen["action: bound"] == 7


def test_what_is_left_out_changes_nothing() -> None:
    """Simulates a plan with and without jumps of time."""
    entries = (
        Entry(700.0, "burst", {"name": "immich-ml", "mib": 3000, "seconds": 3000.0, "lies": True}),
        Entry(2000.0, "restart", {"name": "frigate"}),
        Entry(3000.0, "idle", {"name": "llama-swap", "mib": 2500, "seconds": 3000.0}),
        Entry(3100.0, "demand", {"name": "ebook2audiobook", "seconds": 1200.0}),
    )
    plan = Plan(shape=Shape(), entries=entries, days=0.1)
    acts = [
        Counter(line.what for line in simulate(plan, jumping=jumping).timeline.lines if line.who == "api")
        for jumping in (True, False)
    ]
    assert acts[0] == acts[1]
    assert acts[0]["opens ebook2audiobook"] == 1


@pytest.mark.parametrize("stack", ["observing", "prod"])
def test_a_stack_that_observes_evicts_and_scales_nobody_and_reports_what_it_would_do(stack: str) -> None:
    entries = (
        Entry(600.0, "burst", {"name": "immich-ml", "mib": 2800, "seconds": 1200.0, "lies": True}),
        Entry(2400.0, "idle", {"name": "llama-swap", "mib": 900, "seconds": 3000.0}),
        Entry(2500.0, "demand", {"name": "ebook2audiobook", "seconds": 1200.0}),
    )
    lines = simulate(Plan(shape=Shape(stack=stack), entries=entries, days=0.05)).timeline.lines
    acts = {line.what.split()[0] for line in lines if line.who == "api"} & {"evicts", "opens"}
    reports = {line.what.split()[0] for line in lines if line.who == "event"}
    if stack == "observing":
        assert acts == set()
        assert {names.EVENT_WOULD_RECYCLE, names.EVENT_GATE_WOULD_OPEN} <= reports
        assert {names.EVENT_RECYCLED, names.EVENT_GATE_OPENED}.isdisjoint(reports)
    else:
        assert acts == {"evicts", "opens"}
        assert names.EVENT_WOULD_RECYCLE not in reports
