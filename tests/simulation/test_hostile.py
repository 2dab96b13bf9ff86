"""Tests that the hostile values of one tenant change nothing for other tenants."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.simulation.hostile import ANSWERS, TRICKS
from tests.simulation.plan import Entry, Plan
from tests.simulation.run import report, simulate
from tests.simulation.system import Shape

DEMAND = (
    Entry(550.0, "idle", {"name": "llama-swap", "mib": 2500, "seconds": 1200.0}),
    Entry(600.0, "demand", {"name": "ytdlp", "seconds": 600.0}),
)
OVER = (
    Entry(600.0, "burst", {"name": "immich-ml", "mib": 2600, "seconds": 3000.0, "lies": True}),
    Entry(1300.0, "burst", {"name": "frigate", "mib": 2500, "seconds": 3000.0, "lies": True}),
)


def _decisions(plan: Plan, hostile: str) -> Sequence[str]:
    result = simulate(plan)
    assert result.found == (), report(result)
    lines = (line for line in result.timeline.lines if line.who in ("api", "event", "scheduler", "kubelet"))
    return [str(line) for line in lines if hostile not in line.what]


@pytest.mark.parametrize("trick", TRICKS)
def test_hostile_fields_change_no_decision_about_others(trick: str) -> None:
    hostile = Entry(500.0, "hostile", {"name": "llama-swap", "trick": trick, "seconds": 1500.0})
    plan = Plan(shape=Shape(stack="queue"), entries=(hostile, *OVER), days=0.02)
    found = _decisions(plan, "llama-swap")
    assert any("evicts immich-ml" in line for line in found)
    assert found == _decisions(replace(plan, tame=True), "llama-swap")


@pytest.mark.parametrize("answer", ANSWERS)
def test_hostile_responses_of_a_probe_change_no_decision_about_others(answer: str) -> None:
    hostile = Entry(500.0, "hostile_probe", {"name": "ebook2audiobook", "answer": answer, "seconds": 1500.0})
    plan = Plan(shape=Shape(), entries=(hostile, *DEMAND), days=0.015)
    found = _decisions(plan, "ebook2audiobook")
    assert any("opens ytdlp" in line for line in found)
    assert found == _decisions(replace(plan, tame=True), "ebook2audiobook")
