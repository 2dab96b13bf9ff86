"""What a refused preview proposes is what the gate takes."""

import pytest

from stacks.preview.remedies import remedies
from tenancy import sums
from tests.support.graphs import LEDGER, seat


def test_seats_that_fit_need_no_remedy() -> None:
    assert [*remedies(LEDGER)] == []


@pytest.mark.parametrize(
    ("budgets", "line"),
    [
        ({"llama-swap": 7000}, "t4: the smallest change that fits lowers llama-swap from 7000 to 5524"),
        (
            {"llama-swap": 13000, "frigate": 13000},
            "t4: the smallest change that fits lowers frigate from 13000 to 1, llama-swap from 13000 to 7523",
        ),
    ],
)
def test_the_fewest_seats_are_lowered_by_the_least(budgets: dict[str, int], line: str) -> None:
    assert [*remedies(LEDGER.with_budgets(budgets))] == [line]


def test_what_is_proposed_passes_and_a_mib_more_does_not() -> None:
    passes, more = (LEDGER.with_budgets({"llama-swap": mib}) for mib in (5524, 5525))
    assert not [*sums.contradictions(passes)]
    assert [*sums.contradictions(more)]


def test_what_lowering_does_not_help_has_none() -> None:
    assert [*remedies(seat("llama-swap", gpumem_mib=5000, pool="batch"))] == []
