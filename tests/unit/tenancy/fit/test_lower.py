"""Tests that the search lowers the budgets of as few seats as possible."""

from dataclasses import replace

import pytest

from tenancy.fit.lower import largest_seat, lower_budgets, nodes_needed, obstacle
from tenancy.fit.smallest_change import SmallestChange, Wanted, least_mib
from tenancy.ledger import Seat
from tests.support import fit_oracle, search
from tests.support.graphs import LEDGER, T4


def lowered(plan: SmallestChange) -> dict[str, int | None]:
    assert plan.changes is not None
    return {change.workload: change.to_mib for change in plan.changes}


@pytest.mark.parametrize(("used_mib", "least"), [(None, 2501), (0, 2501), (1000, 1000), (6000, 5001)])
def test_a_seat_keeps_what_it_uses_and_half_of_its_budget_if_the_use_is_unknown(
    used_mib: int | None, least: int
) -> None:
    assert least_mib(5001, used_mib) == least


def test_what_fits_lowers_nothing() -> None:
    assert lower_budgets(LEDGER, T4, Wanted(mib=500)) == SmallestChange()


def test_of_prod_the_largest_seat_gives_what_lacks_and_the_floor_stays_free() -> None:
    plan = lower_budgets(LEDGER, T4, Wanted(mib=4000), {"llama-swap": 1})
    assert lowered(plan) == {"llama-swap": 1524}
    assert plan.cost == (1, 3476)
    assert plan.proven


def test_a_pool_that_promises_too_much_already_is_put_right_without_anybody_new() -> None:
    seats = tuple(replace(seat, gpumem_mib=7000) if seat.name == "llama-swap" else seat for seat in LEDGER.seats)
    assert lowered(lower_budgets(replace(LEDGER, seats=seats), T4)) == {"llama-swap": 5524}


def test_more_nodes_are_always_an_answer_but_for_what_no_device_holds() -> None:
    assert nodes_needed(LEDGER, T4, Wanted(mib=4001)) == 2
    assert nodes_needed(LEDGER, T4, Wanted(mib=4000)) is None  # Seats of 14000 MiB could fill a device, and its floor.
    assert nodes_needed(LEDGER, replace(T4, floor_mib=0), Wanted(mib=4001)) == 2
    one = replace(T4, floor_mib=0, node_selector={"kubernetes.io/hostname": "node-4"})
    assert nodes_needed(LEDGER, one, Wanted(mib=4001)) is None
    assert nodes_needed(LEDGER, T4, Wanted(mib=500)) == 1
    assert nodes_needed(LEDGER, T4, Wanted(mib=14001)) is None
    assert "offers 14000 MiB" in obstacle(LEDGER, T4, Wanted(mib=14001))
    assert "has 1 devices" in obstacle(LEDGER, T4, Wanted(mib=10, count=2))
    assert lower_budgets(LEDGER, T4, Wanted(mib=14001)) == SmallestChange(changes=None)


def test_without_steps_for_all_it_says_how_little_could_do() -> None:
    pool = replace(T4, nodes=30, floor_mib=0)
    seats = tuple(Seat(name=f"s{n}", tenant="t", pool="t4", gpumem_mib=7001 + 7 * n) for n in range(30))
    ledger, least = replace(LEDGER, pools=(pool,), seats=seats), dict.fromkeys((seat.name for seat in seats), 1)
    plan = lower_budgets(ledger, pool, Wanted(mib=6500, replicas=33), least, work=50_000)
    assert plan.changes
    assert plan.least <= plan.cost
    assert not plan.proven


@pytest.mark.search
def test_a_seat_of_the_largest_size_is_accepted_and_no_larger_one() -> None:
    dice = search.dice("largest")
    for _ in range(search.cases(300, soak=100_000)):
        case = fit_oracle.promises(dice)
        sizes = [
            mib
            for mib in range(1, case.pool.memory_mib + 1)
            if fit_oracle.budgets_fit(replace(case, wanted=Wanted(mib=mib)), {})
        ]
        assert largest_seat(case.ledger, case.pool) == max(sizes, default=0), (search.seed(), case)


def test_the_largest_seat_of_prod_leaves_the_floor_free() -> None:
    assert largest_seat(LEDGER, T4) == 524


@pytest.mark.search
def test_no_other_change_is_smaller() -> None:
    dice = search.dice("lower")
    for _ in range(search.cases(100, soak=100_000)):
        case = fit_oracle.promises(dice)
        found = lower_budgets(case.ledger, case.pool, case.wanted, case.least)
        error = fit_oracle.verdict(found, fit_oracle.wrong_budgets(case, found), fit_oracle.cheapest_budgets(case))
        assert error in ("", "unknown"), (error, search.seed(), case, found)


def test_a_floor_above_the_reserve_still_has_a_remedy() -> None:
    pool = replace(T4, nodes=2, floor_mib=2860)
    sizes = {"a": 12_311, "b": 8581, "c": 5108}
    seats = tuple(Seat(name=name, tenant="t", pool="t4", gpumem_mib=mib) for name, mib in sizes.items())
    least = {name: least_mib(mib, None) for name, mib in sizes.items()}
    assert lowered(lower_budgets(replace(LEDGER, pools=(pool,), seats=seats), pool, None, least, work=100_000))


def test_where_the_search_ends_before_it_finds_any_there_is_no_plan() -> None:
    pool = replace(T4, nodes=30, device_count=4, floor_mib=0)
    seats = tuple(Seat(name=f"s{n:03}", tenant="t", pool=pool.name, gpumem_mib=7001 + n % 3) for n in range(120))
    least = {seat.name: seat.gpumem_mib - 1 for seat in seats}
    ledger = replace(LEDGER, pools=(pool, *LEDGER.pools[1:]), seats=seats)
    assert lower_budgets(ledger, pool, Wanted(mib=6999, count=2, replicas=60), least).changes is None
