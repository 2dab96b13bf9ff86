"""Tests that the search lowers the budgets of as few seats of a stack file as possible.

To find the fewest, the test tries every budget.
"""

import random
from dataclasses import replace
from itertools import product

import pytest

from tenancy import sums
from tenancy.fit.lower import NodesNeeded, lower_budgets, nodes_needed, obstacle
from tenancy.fit.smallest_change import SmallestChange, Wanted
from tenancy.ledger import Ledger, Pool, QueueQuota, Seat
from tests.support.graphs import LEDGER, T4
from tests.support.placements import by_trying_everything

CASES = 10_000


def lowered(plan: SmallestChange | None) -> dict[str, int | None]:
    assert plan is not None
    return {change.workload: change.to_mib for change in plan.changes}


def test_what_fits_lowers_nothing() -> None:
    assert lower_budgets(LEDGER, T4, Wanted(mib=500)) == SmallestChange()


def test_of_prod_the_largest_seat_gives_what_lacks_and_the_floor_stays_free() -> None:
    plan = lower_budgets(LEDGER, T4, Wanted(mib=4000))
    assert lowered(plan) == {"llama-swap": 1524}  # 13824 MiB fit, not 14000, because the floor is above the reserve
    assert plan is not None
    assert plan.cost == (1, 3476)
    assert plan.proven


def test_a_pool_that_promises_too_much_already_is_put_right_without_anybody_new() -> None:
    seats = tuple(replace(seat, gpumem_mib=7000) if seat.name == "llama-swap" else seat for seat in LEDGER.seats)
    assert lowered(lower_budgets(replace(LEDGER, seats=seats), T4)) == {"llama-swap": 5524}


def test_more_nodes_are_always_an_answer_but_for_what_no_device_holds() -> None:
    assert nodes_needed(LEDGER, T4, Wanted(mib=4001)) == NodesNeeded(nodes=2)
    assert nodes_needed(LEDGER, T4, Wanted(mib=500)) == NodesNeeded(nodes=1)
    assert nodes_needed(LEDGER, T4, Wanted(mib=14001)) is None
    assert "offers 14000 MiB" in obstacle(LEDGER, T4, Wanted(mib=14001))
    assert "has 1 devices" in obstacle(LEDGER, T4, Wanted(mib=10, count=2))
    assert lower_budgets(LEDGER, T4, Wanted(mib=14001)) is None


def test_where_seats_that_may_lie_together_would_take_the_floor_more_nodes_need_a_lower_floor() -> None:
    assert nodes_needed(LEDGER, T4, Wanted(mib=4000)) == NodesNeeded(nodes=2, floor_mib=1360)


def test_without_steps_for_all_it_says_how_little_could_do() -> None:
    pool = replace(T4, nodes=30, floor_mib=0)
    seats = tuple(Seat(name=f"s{n}", tenant="t", pool="t4", gpumem_mib=7001 + 7 * n) for n in range(30))
    plan = lower_budgets(replace(LEDGER, pools=(pool,), seats=seats), pool, Wanted(mib=6500, replicas=33), work=3000)
    assert plan is not None
    assert plan.least <= plan.cost
    assert not plan.proven


def test_seats_by_the_million_are_counted() -> None:
    pool = replace(T4, nodes=10**6, floor_mib=0)
    seats = (Seat(name="many", tenant="t", pool="t4", gpumem_mib=5000, replicas=2 * 10**6),)
    assert (
        lower_budgets(replace(LEDGER, pools=(pool,), seats=seats), pool, Wanted(mib=4000, replicas=10**6))
        == SmallestChange()
    )
    plan = lower_budgets(replace(LEDGER, pools=(pool,), seats=seats), pool, Wanted(mib=4001, replicas=10**6))
    assert lowered(plan) == {"many": 4999}


def case(dice: random.Random) -> tuple[Ledger, Pool, Wanted | None]:
    """Draws at most four small devices, three seats and a queue."""
    memory = dice.randint(3, 7)
    reserve = dice.choice((0, 0, 1))
    pool = Pool(
        name="p",
        node_selector={"a": "b"},
        nodes=dice.randint(1, 2),
        device_count=dice.randint(1, 2),
        memory_mib=memory,
        reserve_mib=reserve,
        driver_reserved_mib=0,
        floor_mib=min(dice.choice((0, 0, 1, 2)), memory - reserve - 1),
    )
    seats = tuple(
        Seat(
            name=name,
            tenant="t",
            pool="p",
            gpumem_mib=dice.randint(1, 4),
            replicas=dice.choice((1, 1, 2)),
            devices_per_pod=dice.choice((1, 1, pool.device_count)),
        )
        for name in "abc"[: dice.randint(0, 3)]
    )
    quotas = (
        (QueueQuota(queue="q", flavor="f", pool="p", resource="x.y/gpumem", nominal=1),) if dice.random() < 0.2 else ()
    )
    wanted = Wanted(mib=dice.randint(1, 4), count=dice.choice((1, 1, 2)), replicas=dice.choice((1, 1, 2)))
    return Ledger(domain="x.y", pools=(pool,), seats=seats, quotas=quotas), pool, dice.choice((wanted, wanted, None))


def everything_tried(ledger: Ledger, pool: Pool, wanted: Wanted | None) -> tuple[int, int] | None:
    """Returns the lowest cost of all budgets that satisfy the sums of the policy pack and for which a
    placement exists.
    """
    sizes = product(*(range(seat.gpumem_mib, 0, -1) for seat in ledger.seats))
    priced = sorted(
        (
            sum(s.gpumem_mib != m for s, m in zip(ledger.seats, each, strict=True)),
            sum((s.gpumem_mib - m) * s.devices for s, m in zip(ledger.seats, each, strict=True)),
            each,
        )
        for each in sizes
    )
    empty = ((pool.device_mib,) * pool.device_count,) * pool.nodes
    new_requests = [(wanted.mib, wanted.count)] * wanted.replicas if wanted else []
    for count, mib, each in priced:
        requests = [(m, s.devices_per_pod) for s, m in zip(ledger.seats, each, strict=True) for _ in range(s.replicas)]
        if not by_trying_everything(tuple(sorted(requests + new_requests)), empty):
            continue
        seats = [replace(s, gpumem_mib=m) for s, m in zip(ledger.seats, each, strict=True)]
        if wanted:
            new = Seat(name="new", tenant="n", pool="p", gpumem_mib=wanted.mib, replicas=wanted.replicas)
            seats.append(replace(new, devices_per_pod=wanted.count))
        changed = replace(ledger, seats=tuple(seats))
        wrong = [rule for rule, _ in sums.contradictions(changed)]
        if not wrong:
            return count, mib
    return None


@pytest.mark.parametrize("seed", range(10))
def test_no_other_change_is_smaller(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    for number in range(CASES // 10):
        made = case(dice)
        plan = lower_budgets(*made)
        assert (plan.cost if plan else None) == everything_tried(*made), (number, made, plan)
        assert plan is None or plan.proven


def test_where_the_search_ends_before_it_finds_any_there_is_no_plan() -> None:
    """Before the fix, the search ended in a traceback."""
    pool = replace(T4, nodes=30, device_count=4, floor_mib=0)
    seats = tuple(Seat(name=f"s{n:03}", tenant="t", pool=pool.name, gpumem_mib=7001 + n % 3) for n in range(120))
    used = {seat.name: seat.gpumem_mib - 1 for seat in seats}
    ledger = replace(LEDGER, pools=(pool, *LEDGER.pools[1:]), seats=seats)
    assert lower_budgets(ledger, pool, Wanted(mib=6999, count=2, replicas=60), used) is None
