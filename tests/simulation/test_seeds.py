"""Simulates days from seeds. Each day must keep all promises and have its recorded timeline."""

import os

import pytest

from tests.simulation import timelines
from tests.simulation.cases import CASES
from tests.simulation.drawing import draw
from tests.simulation.run import report, simulate

CHUNK = 10
SEEDS = int(os.environ.get("SEEDS", "70"))
# The promises that the open cases in cases.py break.
EXPECTED = [({entry.what for entry in case.plan.entries}, case.broke) for case in CASES if case.open]


@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_days_keep_every_promise_and_are_the_recorded_ones(first: int) -> None:
    found = {}
    for seed in range(first, first + CHUNK):
        plan = draw(seed)
        happens = {entry.what for entry in plan.entries}
        result = simulate(plan)
        broken = {each.name for each in result.found} - {broke for needed, broke in EXPECTED if needed <= happens}
        assert not broken, report(result, broken)
        found[seed] = timelines.digest(result.timeline)
    known = timelines.recorded().keys() & found.keys()
    assert timelines.differing(found, known) == [], "changed days: see tests/simulation/timelines.py"
