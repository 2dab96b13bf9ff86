"""Simulates days from seeds. Each day must keep all promises and have its recorded timeline."""

import os

import pytest

from tests.simulation import timelines
from tests.simulation.drawing import draw
from tests.simulation.run import report, simulate

CHUNK = 10
SEEDS = int(os.environ.get("SEEDS", "20"))


@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_days_keep_every_promise_and_are_the_recorded_ones(first: int) -> None:
    found = {}
    for seed in range(first, first + CHUNK):
        result = simulate(draw(seed))
        assert not result.found, report(result)
        found[seed] = timelines.digest(result.timeline)
    known = timelines.recorded().keys() & found.keys()
    assert timelines.differing(found, known) == [], "changed days: see tests/simulation/timelines.py"
