"""Tests that the search changes the fewest workloads."""

import pytest

from tenancy.fit.layout import Budget, DeviceRoom, PlacedPod
from tenancy.fit.rearrange import rearrange
from tenancy.fit.smallest_change import Kind, SmallestChange, Wanted
from tests.support import fit_oracle, search


def devices(*room: int, node: str = "n") -> list[DeviceRoom]:
    return [DeviceRoom(node=node, name=f"gpu-{index}", room_mib=mib) for index, mib in enumerate(room)]


def resident(name: str, device: int, mib: int, **fields: object) -> PlacedPod:
    return PlacedPod(name=name, device=device, mib=mib, seat=name, **fields)  # type: ignore[arg-type]


def budgets(*pods: PlacedPod, least: int = 1) -> dict[str, Budget]:
    return {
        p.seat: Budget(mib=p.mib, least_mib=least, replicas=sum(q.seat == p.seat for q in pods)) for p in pods if p.seat
    }


def found(smallest: SmallestChange) -> list[tuple[str, str]]:
    assert smallest.changes is not None
    return [(change.kind.value, change.workload) for change in smallest.changes]


def test_what_fits_touches_nobody_and_is_put_on_the_fullest_device_with_room() -> None:
    smallest = rearrange(devices(4000, 2500), [], {}, Wanted(mib=2000))
    assert smallest == SmallestChange(places=(("gpu-1",),))


def test_a_move_comes_before_a_lower_budget() -> None:
    pods = [resident("a", 0, 3000), resident("b", 1, 5000)]
    smallest = rearrange(devices(2000, 3000), pods, budgets(*pods), Wanted(mib=5000))
    assert smallest.changes is not None
    (change,) = smallest.changes
    assert (change.kind, change.workload, change.source, change.target) == (Kind.MOVE, "a", "gpu-0", "gpu-1")
    assert smallest.places == (("gpu-0",),)
    assert smallest.cost == (1, 0)
    assert smallest.proven


def test_where_nobody_can_move_the_least_is_taken_off_one_budget() -> None:
    pods = [resident("a", 0, 3000), resident("b", 1, 5000)]
    smallest = rearrange(devices(1000, 500), pods, budgets(*pods), Wanted(mib=3500))
    assert smallest.changes is not None
    (change,) = smallest.changes
    assert (change.workload, change.from_mib, change.to_mib) == ("a", 3000, 500)


def test_a_budget_is_not_lowered_below_what_is_used() -> None:
    pods = [resident("a", 0, 3000), resident("b", 1, 5000)]
    seats = {"a": Budget(mib=3000, least_mib=2900), "b": Budget(mib=5000, least_mib=1000)}
    smallest = rearrange(devices(1000, 500), pods, seats, Wanted(mib=3500))
    assert found(smallest) == [("lower", "b")]
    assert rearrange(devices(1000), pods[:1], seats, Wanted(mib=3500)) == SmallestChange(changes=None)


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
    assert smallest.changes is not None
    assert smallest.places == (("x0", "x1"),)
    assert smallest.changes[0].target == "y0"


def test_a_device_that_takes_no_new_pod_is_no_place() -> None:
    closed = [DeviceRoom(node="n", name="gpu-0", room_mib=9000, open=False)]
    assert rearrange(closed, [], {}, Wanted(mib=1)) == SmallestChange(changes=None)


def test_without_steps_for_all_it_says_how_little_could_do() -> None:
    pods = [resident(f"p{n}", n, 600) for n in range(12)]
    smallest = rearrange(devices(*[400] * 12), pods, budgets(*pods), Wanted(mib=900, replicas=6), work=30_000)
    assert smallest.changes
    assert not smallest.proven
    assert smallest.least[0] <= smallest.cost[0]


def test_of_many_new_pods_the_few_that_find_no_room_are_what_the_search_is_about() -> None:
    pods = [resident("a", 0, 600)]
    smallest = rearrange(devices(400, 6600), pods, budgets(*pods), Wanted(mib=10, replicas=701), work=30_000)
    assert found(smallest) == [("lower", "a")]


def test_a_lower_budget_counts_once_where_two_replicas_share_a_device() -> None:
    pods = [resident("a", 0, 13, movable=False), PlacedPod(name="a-2", device=0, mib=13, seat="a", movable=False)]
    smallest = rearrange(devices(10), pods, {"a": Budget(mib=13, least_mib=3, replicas=2)}, Wanted(mib=26))
    assert found(smallest) == [("lower", "a")]
    assert smallest.cost == (1, 16)


def test_an_on_demand_workload_with_two_pods_is_parked_once() -> None:
    pods = [PlacedPod(name="tts", device=device, mib=2000, movable=False, parks=True) for device in (0, 1)]
    smallest = rearrange(devices(100, 100), pods, {}, Wanted(mib=2000, count=2))
    assert smallest.changes is not None
    assert [(change.workload, change.source) for change in smallest.changes] == [("tts", "gpu-0 and gpu-1")]


def test_a_device_that_receives_no_pod_may_stay_too_full() -> None:
    pods = [PlacedPod(name="tts", device=device, mib=2000, movable=False, parks=True) for device in (0, 1)]
    pods.append(resident("a", 1, 5000, movable=False))
    smallest = rearrange(devices(100, -3000), pods, budgets(*pods), Wanted(mib=2000))
    assert found(smallest) == [("park", "tts")]


@pytest.mark.search
def test_no_other_change_is_smaller() -> None:
    dice = search.dice("rearrange")
    for _ in range(search.cases(100, soak=100_000)):
        case = fit_oracle.devices(dice)
        smallest = rearrange(case.devices, case.pods, case.seats, case.wanted)
        error = fit_oracle.verdict(smallest, fit_oracle.wrong_change(case, smallest), fit_oracle.cheapest_change(case))
        assert error in ("", "unknown"), (error, search.seed(), case, smallest)
