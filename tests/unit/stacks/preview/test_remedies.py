"""Tests that a refused preview proposes a change that the policy pack accepts."""

import json
from dataclasses import replace
from random import Random

import pytest

from stacks.preview.events import Op, Resource
from stacks.preview.remedies import ledger_before, remedies
from tenancy.fit.smallest_change import least_mib
from tenancy.ledger import Ledger, Seat
from tenancy.names import LEDGER as LEDGER_NAME
from tenancy.names import LEDGER_KEY
from tests.support import fit_oracle, search
from tests.support.graphs import LEDGER, seat

_FLOOR = ": every seat full, a device of 15360 MiB then keeps its floor of 1536 free"


def test_seats_that_fit_need_no_remedy() -> None:
    assert [*remedies(LEDGER)] == []


@pytest.mark.parametrize(
    ("budgets", "line"),
    [
        ({"llama-swap": 7000}, "t4: the smallest change that fits lowers llama-swap from 7000 to 5524" + _FLOOR),
        (
            {"llama-swap": 13000, "frigate": 13000},
            "t4: no budgets fit that keep half of each seat: 2 devices are missing; raise pools.t4.nodes to 3",
        ),
    ],
)
def test_the_fewest_seats_are_lowered_by_the_least(budgets: dict[str, int], line: str) -> None:
    assert [*remedies(LEDGER.with_budgets(budgets))] == [line]


def test_the_seat_that_this_change_adds_or_raises_is_lowered_first() -> None:
    raised = LEDGER.with_budgets({"frigate": 3500})
    added = Seat(name="new", tenant="t", pool="t4", gpumem_mib=1000)
    assert [*remedies(raised, before=LEDGER)] == [
        "t4: this change raises frigate from 2000 to 3500 MiB; the smallest change that fits lowers frigate from 3500 "
        "to 2524" + _FLOOR
    ]
    assert [*remedies(replace(LEDGER, seats=(*LEDGER.seats, added)), before=LEDGER)] == [
        "t4: this change adds new with 1000 MiB; the smallest change that fits lowers new from 1000 to 524" + _FLOOR
    ]


def test_a_seat_that_more_than_doubled_goes_back_together_with_lower_budgets_of_others() -> None:
    """Before the fix, the remedy named no change, because it kept half of each raised budget."""
    added = Seat(name="new", tenant="t", pool="t4", gpumem_mib=1100)
    change = replace(LEDGER, seats=(*LEDGER.seats, added)).with_budgets({"frigate": 13_000, "llama-swap": 12_000})
    (line,) = remedies(change, before=LEDGER)
    lowered = "frigate from 13000 to 2000, llama-swap from 12000 to 5877, immich-ml from 3000 to 1547"
    assert f"the smallest change that fits lowers {lowered}: " in line


def fitting(dice: Random) -> tuple[fit_oracle.Promises, Ledger]:
    """Returns promises, and the ledger before them. In the ledger before, some seats are smaller or missing."""
    case = replace(fit_oracle.promises(dice), wanted=None)
    before = tuple(
        replace(seat, gpumem_mib=dice.randint(1, seat.gpumem_mib)) if dice.random() < 0.5 else seat
        for seat in case.ledger.seats
        if dice.random() < 0.8
    )
    old = {seat.name: seat.gpumem_mib for seat in before}
    least = {
        seat.name: min(least_mib(seat.gpumem_mib, None), old.get(seat.name, seat.gpumem_mib)) for seat in case.seats
    }
    return replace(case, least=least), replace(case.ledger, seats=before)


@pytest.mark.search
def test_no_remedy_stays_silent_although_one_exists() -> None:
    dice = search.dice("remedies")
    for _ in range(search.cases(100, soak=3000)):
        case, before = fitting(dice)
        lines = [*remedies(case.ledger, before=before)]
        cost = fit_oracle.cheapest_budgets(case)
        mine = [line for line in lines if line.startswith("p: ")]
        assert bool(mine) is (cost != (0, 0)), (search.seed(), case, before)
        assert not mine or (" lowers " in mine[0]) is (cost is not None), (search.seed(), case, before, mine)


def test_the_ledger_before_this_change_is_read_from_pulumis_state() -> None:
    before = {"metadata": {"name": LEDGER_NAME}, "data": {LEDGER_KEY: json.dumps(LEDGER.to_data())}}
    urn = "urn:pulumi:prod::gpu-tenancy::kubernetes:core/v1:ConfigMap::ledger"
    assert ledger_before([Resource(urn=urn, parent="", op=Op.UPDATE, before=before)]) == LEDGER
    assert ledger_before([Resource(urn=urn, parent="", op=Op.CREATE)]) is None


def test_a_remedy_names_the_sum_if_no_floor_is_in_the_way() -> None:
    """Before the fix, the remedy gave no reason for its number."""
    pool = replace(LEDGER.pools[0], floor_mib=0)
    (line,) = remedies(replace(LEDGER, pools=(pool,)).with_budgets({"llama-swap": 7000}))
    assert line.endswith(f": then {pool.advertised_mib} MiB are promised, all that t4 advertises")


def test_a_pool_without_shared_memory_has_no_remedy() -> None:
    assert [*remedies(seat("llama-swap", gpumem_mib=5000, pool="batch"))] == []
