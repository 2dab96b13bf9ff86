"""Days drawn by seeds, each with every promise looked at. More of them: make simulate SEEDS=1000."""

import os

import pytest

from tests.simulation import faults
from tests.simulation.cases import CASES
from tests.simulation.run import report, simulate

CHUNK = 10
# Of the quick run; what a search found is kept by its plan in cases.py, not by its seed.
SEEDS = int(os.environ.get("SEEDS", "100"))
# What a case of cases.py that is still open breaks, and by which entries: other plans with these break it as well.
EXPECTED = [({entry.what for entry in case.plan.entries}, case.broke) for case in CASES if case.open]


@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_days_keep_every_promise(first: int) -> None:
    for seed in range(first, first + CHUNK):
        plan = faults.draw(seed)
        happens = {entry.what for entry in plan.entries}
        result = simulate(plan)
        broken = {each.name for each in result.found} - {broke for needed, broke in EXPECTED if needed <= happens}
        assert not broken, report(result, broken)
