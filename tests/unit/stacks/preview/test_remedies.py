"""Tests that a refused preview proposes a change that the policy pack accepts."""

from dataclasses import replace

import pytest

from stacks.preview.remedies import remedies
from tenancy.ledger import Ledger, Seat
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


def test_a_seat_is_named_with_its_file_where_it_has_one() -> None:
    (line,) = remedies(LEDGER.with_budgets({"llama-swap": 7000}), {"llama-swap": "stacks.d/a.yaml"}.__getitem__)
    assert line == "t4: the smallest change that fits lowers llama-swap (stacks.d/a.yaml) from 7000 to 5524"


def test_what_lowering_does_not_help_has_none() -> None:
    assert [*remedies(seat("llama-swap", gpumem_mib=5000, pool="batch"))] == []


def alike(*budgets: tuple[int, int]) -> Ledger:
    """Returns a ledger with 2 nodes of 2 devices with 14,000 MiB.

    The seats have these budgets and numbers of replicas.
    """
    pool = replace(LEDGER.pools[0], nodes=2, device_count=2, floor_mib=0)
    seats = [
        Seat(name=f"s{number}", tenant="t", pool="t4", gpumem_mib=mib, replicas=replicas)
        for number, (mib, replicas) in enumerate(budgets)
    ]
    return replace(LEDGER, pools=(pool, *LEDGER.pools[1:]), seats=tuple(seats))


@pytest.mark.no_cover
def test_of_seats_that_are_almost_alike_a_remedy_is_not_searched_for_minutes() -> None:
    """Before the fix, the search tried every budget of several seats and did not count these tries as steps."""
    (line,) = remedies(
        alike(
            (3001, 8), (3000, 1), (3001, 8), (5000, 1), (3001, 8), (3001, 1), (5000, 8), (5000, 2), (5000, 1), (3000, 2)
        )
    )
    assert "perhaps not the smallest" in line


def test_of_more_than_can_be_searched_soon_none_is_proposed() -> None:
    assert [*remedies(alike(*[(9000, 1)] * 40))]
    assert not [*remedies(alike(*[(9000, 1)] * 41))]
