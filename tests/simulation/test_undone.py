"""Tests that each plan of cases.py breaks its promise if the fix is taken out of the code."""

import pytest

from tests.simulation.cases import CASES, Case
from tests.simulation.run import simulate
from tests.simulation.undone import UNDONE, undone


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_its_fix_a_plan_breaks_its_promise(case: Case) -> None:
    with undone(case.name):
        result = simulate(case.plan)
    assert case.broke in {each.name for each in result.found}


def test_each_fix_that_is_taken_out_belongs_to_a_plan() -> None:
    assert UNDONE.keys() == {case.name for case in CASES}
