"""Tests that the search moves or stops the fewest pods. The test tries all changes."""

import random
from dataclasses import replace
from itertools import product
from operator import mul

import pytest

from tenancy.fit.layout import Budget, DeviceRoom, PlacedPod
from tenancy.fit.rearrange import rearrange
from tenancy.fit.smallest_change import Kind, SmallestChange, Wanted

CASES = 10_000


def devices(*room: int, node: str = "n") -> list[DeviceRoom]:
    return [DeviceRoom(node=node, name=f"gpu-{index}", room_mib=mib) for index, mib in enumerate(room)]


def resident(name: str, device: int, mib: int, **fields: object) -> PlacedPod:
    return PlacedPod(name=name, device=device, mib=mib, seat=name, **fields)  # type: ignore[arg-type]


def budgets(*pods: PlacedPod, least: int = 1) -> dict[str, Budget]:
    return {
        p.seat: Budget(mib=p.mib, least_mib=least, replicas=sum(q.seat == p.seat for q in pods)) for p in pods if p.seat
    }


def found(smallest: SmallestChange | None) -> list[tuple[str, str]]:
    assert smallest is not None
    return [(change.kind.value, change.workload) for change in smallest.changes]


def test_what_fits_touches_nobody_and_is_put_on_the_fullest_device_with_room() -> None:
    smallest = rearrange(devices(4000, 2500), [], {}, Wanted(mib=2000))
    assert smallest == SmallestChange(places=(("gpu-1",),))


def test_a_move_comes_before_a_lower_budget() -> None:
    pods = [resident("a", 0, 3000), resident("b", 1, 5000)]
    smallest = rearrange(devices(2000, 3000), pods, budgets(*pods), Wanted(mib=5000))
    assert smallest is not None
    (change,) = smallest.changes
    assert (change.kind, change.workload, change.source, change.target) == (Kind.MOVE, "a", "gpu-0", "gpu-1")
    assert smallest.places == (("gpu-0",),)
    assert smallest.cost == (1, 0)
    assert smallest.proven


def test_where_nobody_can_move_the_least_is_taken_off_one_budget() -> None:
    pods = [resident("a", 0, 3000), resident("b", 1, 5000)]
    smallest = rearrange(devices(1000, 500), pods, budgets(*pods), Wanted(mib=3500))
    assert smallest is not None
    (change,) = smallest.changes
    assert (change.workload, change.from_mib, change.to_mib) == ("a", 3000, 500)


def test_a_budget_is_not_lowered_below_what_is_used() -> None:
    pods = [resident("a", 0, 3000), resident("b", 1, 5000)]
    seats = {"a": Budget(mib=3000, least_mib=2900), "b": Budget(mib=5000, least_mib=1000)}
    smallest = rearrange(devices(1000, 500), pods, seats, Wanted(mib=3500))
    assert found(smallest) == [("lower", "b")]
    assert rearrange(devices(1000), pods[:1], seats, Wanted(mib=3500)) is None


def test_an_on_demand_workload_is_parked() -> None:
    pods = [PlacedPod(name="tts", device=0, mib=2048, parks=True)]
    assert found(rearrange(devices(100), pods, {}, Wanted(mib=2000))) == [("park", "tts")]


def test_devices_of_one_node_are_emptied_for_a_pod_that_wants_several() -> None:
    pods = [resident("a", 0, 1000), resident("b", 2, 9000)]
    room = [
        DeviceRoom(node="x", name="x0", room_mib=9000),
        DeviceRoom(node="x", name="x1", room_mib=10000),
        DeviceRoom(node="y", name="y0", room_mib=1000),
        DeviceRoom(node="y", name="y1", room_mib=10000),
    ]
    smallest = rearrange(room, pods, budgets(*pods), Wanted(mib=10000, count=2))
    assert found(smallest) == [("move", "a")]
    assert smallest is not None
    assert smallest.places == (("x0", "x1"),)
    assert smallest.changes[0].target == "y0"


def test_a_device_that_takes_no_new_pod_is_no_place() -> None:
    closed = [DeviceRoom(node="n", name="gpu-0", room_mib=9000, open=False)]
    assert rearrange(closed, [], {}, Wanted(mib=1)) is None


def test_without_steps_for_all_it_says_how_little_could_do() -> None:
    pods = [resident(f"p{n}", n, 600) for n in range(12)]
    smallest = rearrange(devices(*[400] * 12), pods, budgets(*pods), Wanted(mib=900, replicas=6), work=300)
    assert smallest is not None
    assert not smallest.proven
    assert smallest.least[0] <= smallest.cost[0]


def test_so_many_new_pods_that_no_search_reaches_them_end_in_none() -> None:
    pods = [resident(f"p{n}", n, 600) for n in range(4)]
    assert rearrange(devices(*[400] * 4), pods, budgets(*pods), Wanted(mib=900, replicas=5000)) is None


def test_of_many_new_pods_the_few_that_find_no_room_are_what_the_search_is_about() -> None:
    pods = [resident("a", 0, 600)]
    smallest = rearrange(devices(400, 6600), pods, budgets(*pods), Wanted(mib=10, replicas=701), work=30_000)
    assert found(smallest) == [("lower", "a")]


def case(dice: random.Random) -> tuple[list[DeviceRoom], list[PlacedPod], dict[str, Budget], Wanted]:
    """Generates a random case. It has up to three devices, up to three pods on two seats, and up to two new pods."""
    size = dice.randint(2, 5)
    nodes = dice.choice((("n", "n"), ("n", "n", "n"), ("n", "n", "m"), ("n", "m")))
    seats: dict[str, Budget] = {}
    for name in ("a", "b"):
        mib = dice.randint(1, 4)
        seats[name] = Budget(mib=mib, least_mib=dice.randint(1, mib), replicas=1)
    pods = []
    free = [size] * len(nodes)
    for number in range(dice.randint(0, 3)):
        device = dice.randrange(len(nodes))
        kind = dice.choice(("a", "b", "c", "park", "fixed"))
        mib = seats[kind].mib if kind in seats else dice.randint(1, 3)
        if mib > free[device]:
            continue
        free[device] -= mib
        pods.append(
            PlacedPod(
                name=f"{kind}-{number}",
                device=device,
                mib=mib,
                seat=kind if kind in seats else None,
                movable=kind not in ("park", "fixed"),
                parks=kind == "park",
            )
        )
    seats = {
        name: replace(seat, replicas=max(sum(pod.seat == name for pod in pods), 1)) for name, seat in seats.items()
    }
    made = [
        DeviceRoom(node=node, name=f"{node}{index}", room_mib=free[index], open=dice.random() < 0.9)
        for index, node in enumerate(nodes)
    ]
    wanted = Wanted(mib=dice.randint(1, size), count=dice.choice((1, 1, 2)), replicas=dice.choice((1, 1, 2)))
    return made, pods, seats, wanted


def everything_tried(
    made: list[DeviceRoom], pods: list[PlacedPod], seats: dict[str, Budget], wanted: Wanted
) -> tuple[int, int] | None:
    """Returns the lowest cost over all placements of all pods and all budgets."""
    everywhere = [index for index, device in enumerate(made) if device.open]
    ways = [
        (a, b) if wanted.count == 2 else (a,)
        for a in everywhere
        for b in (everywhere if wanted.count == 2 else [a])
        if wanted.count == 1 or (a < b and made[a].node == made[b].node)
    ]
    empty = [device.room_mib for device in made]
    for pod in pods:
        empty[pod.device] += pod.mib
    where = [
        [pod.device, *([None] if pod.parks else [i for i in everywhere if i != pod.device] if pod.movable else [])]
        for pod in pods
    ]
    names = sorted({pod.seat for pod in pods if pod.seat})
    amounts = [range(seats[name].mib - seats[name].least_mib + 1) for name in names]
    new = {
        tuple(sum(way.count(index) for way in each) * wanted.mib for index in range(len(made)))
        for each in product(ways, repeat=wanted.replicas)
    }
    prices = [seats[name].replicas for name in names]
    priced = sorted((sum(map(bool, lower)), sum(map(mul, lower, prices)), lower) for lower in product(*amounts))
    best: tuple[int, int] | None = None
    for places in product(*where):
        touched = sum(place != pod.device for place, pod in zip(places, pods, strict=True))
        for count, mib, lower in priced:
            cost = (touched + count, mib)
            if best is not None and cost >= best:
                break
            less = dict(zip(names, lower, strict=True))
            left = [*empty]
            for place, pod in zip(places, pods, strict=True):
                if place is not None:
                    left[place] -= pod.mib - less.get(pod.seat or "", 0)
            if any(all(have >= need for have, need in zip(left, each, strict=True)) for each in new):
                best = cost
    return best


@pytest.mark.parametrize("seed", range(10))
def test_no_other_change_is_smaller(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    for number in range(CASES // 10):
        made = case(dice)
        smallest = rearrange(*made)
        assert (smallest.cost if smallest else None) == everything_tried(*made), (number, made, smallest)
        assert smallest is None or smallest.proven
