"""A seating uses no device twice, and keeps the seats without a change on their devices."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.ledger import Ledger, Pool, QueueQuota, Seat
from tenancy.seating import Seating, TooManySeatsError, aligned_seatings, is_drawn_by_node, seating

POOL = Pool(name="a100", node_selector={"gpu": "a100"}, nodes=2, device_count=2, memory_mib=1000, reserve_mib=100)


def seat(name: str, mib: int, *, replicas: int = 1, devices: int = 1) -> Seat:
    return Seat(name=name, tenant="x", pool="a100", gpumem_mib=mib, replicas=replicas, devices_per_pod=devices)


def ledger(*seats: Seat, pool: Pool = POOL) -> Ledger:
    return Ledger(domain="example.com", pools=(pool,), seats=seats)


def devices(found: Seating) -> list[str]:
    """Returns the seats of each device as text."""
    return [
        " ".join(f"{each.name}*{each.count}" for each in device.seats)
        for device, count in found.devices
        for _ in range(count)
    ]


ledgers = st.builds(
    lambda sizes, nodes, count: ledger(
        *(seat(f"s{n}", mib, replicas=r, devices=d) for n, (mib, r, d) in enumerate(sizes)),
        pool=replace(POOL, nodes=nodes, device_count=count),
    ),
    st.lists(st.tuples(st.integers(1, 950), st.integers(1, 4), st.sampled_from([1, 1, 1, 2])), max_size=6),
    st.integers(1, 3),
    st.integers(1, 3),
)


def check(found: Seating, of: Ledger) -> None:
    (pool,) = of.pools
    for counts in (found.devices, found.nodes):
        assert all(count > 0 for _, count in counts)
    assert sum(count for _, count in found.devices) == pool.gpus
    assert sum(count for _, count in found.nodes) == pool.nodes
    by_node = Counter(device for node, count in found.nodes for device in node for _ in range(count))
    assert by_node == Counter(device for device, count in found.devices for _ in range(count))
    assert all(device.seats_mib + device.queued_mib <= pool.device_mib for device, _ in found.devices)
    placed = Counter({each.name: each.count for each in found.seats})
    missing = Counter({each.name: 0 for each in of.seats})
    for item in found.unplaced:
        missing[item.name] += item.devices
    assert placed + missing == Counter({each.name: each.devices for each in of.seats})


@given(ledgers)
@settings(max_examples=200)
def test_each_seat_is_on_a_device_or_is_listed_as_unplaced(of: Ledger) -> None:
    check(seating(of, of.pools[0]), of)


@given(ledgers, ledgers)
@settings(max_examples=200)
def test_the_seatings_before_and_after_a_change_are_complete(before: Ledger, after: Ledger) -> None:
    for found, of in zip(
        aligned_seatings([(each, each.pools[0]) for each in (before, after)]), (before, after), strict=True
    ):
        check(found, of)


def test_a_seat_without_a_change_keeps_its_device() -> None:
    kept = [seat("a", 500), seat("b", 400), seat("c", 300, replicas=2)]
    sides = [ledger(*kept, seat("d", 200)), ledger(*kept, seat("d", 600))]
    before, after = aligned_seatings([(each, POOL) for each in sides])
    assert devices(before) == ["", "c*2 d*1", "a*1 b*1", ""]
    assert devices(after) == ["d*1", "c*2", "a*1 b*1", ""]


def test_the_devices_with_a_change_come_first() -> None:
    full = [seat(f"s{n}", 900) for n in range(3)]
    before, after = aligned_seatings([(ledger(*full), POOL), (ledger(*full, seat("new", 10)), POOL)])
    assert devices(before) == ["", "s0*1", "s1*1", "s2*1"]
    assert devices(after) == ["new*1", "s0*1", "s1*1", "s2*1"]


def test_a_change_that_only_fits_with_new_places_is_drawn_with_new_places() -> None:
    pool = replace(POOL, nodes=1, device_count=2)
    kept = [seat("a", 500), seat("b", 400)]  # together on one device, if the search places only these
    before, after = aligned_seatings(
        [(ledger(*kept, pool=pool), pool), (ledger(*kept, seat("c", 500), seat("d", 400), pool=pool), pool)]
    )
    assert (before.unplaced, after.unplaced) == ((), ())


def test_the_pods_of_several_devices_stay_on_one_node() -> None:
    found = seating(ledger(seat("pair", 600, replicas=2, devices=2), seat("one", 300)), POOL)
    assert [[" ".join(each.name for each in device.seats) for device in node] for node, _ in found.nodes] == [
        ["pair one", "pair"],
        ["pair", "pair"],
    ]


def test_a_pool_that_grows_keeps_its_seats() -> None:
    seats = [seat("a", 500), seat("b", 500)]
    larger = replace(POOL, nodes=5)
    before, after = aligned_seatings([(ledger(*seats), POOL), (ledger(*seats, pool=larger), larger)])
    assert (devices(before), devices(after)) == (["a*1", "b*1", "", ""], ["a*1", "b*1", *[""] * 8])


def test_queues_get_their_part_of_the_devices() -> None:
    quota = QueueQuota(queue="q", flavor="f", pool="a100", resource="example.com/gpumem", nominal=2000)
    found = seating(replace(ledger(seat("a", 800)), quotas=(quota,)), POOL)
    assert sum(device.queued_mib * count for device, count in found.devices) == 100 + 3 * 634  # 1900 / 3, rounded up


def test_a_pool_with_too_many_seats_is_an_error() -> None:
    many = replace(POOL, nodes=100_000)
    with pytest.raises(TooManySeatsError, match=r"^20001 seats: 20000 at most are drawn; the policy pack places them$"):
        seating(ledger(seat("s", 1, replicas=20_001), pool=many), many)


@pytest.mark.parametrize(("nodes", "count", "by_node"), [(8, 1, False), (9, 1, True), (2, 8, True), (1, 64, False)])
def test_a_picture_has_a_line_for_each_node_where_devices_are_many(nodes: int, count: int, by_node: bool) -> None:
    assert is_drawn_by_node(replace(POOL, nodes=nodes, device_count=count)) is by_node
