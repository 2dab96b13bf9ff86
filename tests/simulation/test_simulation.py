"""Simulates the plans that once broke a promise, a day without faults, and a stack that observes."""

import pytest

from tenancy import names
from tests.simulation.cases import CASES, Case
from tests.simulation.plan import Entry, Plan
from tests.simulation.run import report, simulate
from tests.simulation.system import Shape


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_plan_that_broke_a_promise_keeps_it(case: Case) -> None:
    result = simulate(case.plan)
    broken = [each for each in result.found if each.name == case.broke]
    assert not broken, report(result)


def test_a_day_without_faults_keeps_every_promise_and_recycles_nobody() -> None:
    result = simulate(Plan(shape=Shape(), entries=(), days=1.0))
    assert result.found == (), report(result)
    assert result.timeline.seen["action: evicted"] == 0
    assert result.timeline.seen["action: bound"] == 7


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
