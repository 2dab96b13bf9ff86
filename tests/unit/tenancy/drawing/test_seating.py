"""A seating has each seat on the devices that it needs, or lists the seat as unplaced."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tenancy.drawing.seating import seating
from tenancy.ledger import Ledger, Pool, Seat

POOL = Pool(name="a100", node_selector={"gpu": "a100"}, nodes=2, device_count=2, memory_mib=1000, reserve_mib=100)
ledgers = st.builds(
    lambda sizes, nodes, count: Ledger(
        domain="example.com",
        pools=(replace(POOL, nodes=nodes, device_count=count),),
        seats=tuple(
            Seat(name=f"s{number}", tenant="x", pool="a100", gpumem_mib=mib, replicas=replicas, devices_per_pod=devices)
            for number, (mib, replicas, devices) in enumerate(sizes)
        ),
    ),
    st.lists(st.tuples(st.integers(1, 950), st.integers(1, 4), st.sampled_from([1, 1, 1, 2])), max_size=6),
    st.integers(1, 3),
    st.integers(1, 3),
)


@given(ledgers)
def test_each_seat_is_on_a_device_or_is_listed_as_unplaced(of: Ledger) -> None:
    (pool,) = of.pools
    found = seating(of, pool)
    assert all(count > 0 for _, count in found.devices)
    assert sum(count for _, count in found.devices) == pool.gpus
    assert all(sum(each.mib for each in seats) <= pool.device_mib for seats, _ in found.devices)
    placed = Counter(each.name for seats, count in found.devices for each in seats * count)
    missing = Counter(item.name for item in found.unplaced for _ in range(item.devices))
    assert placed + missing == Counter({each.name: each.devices for each in of.seats})
    assert bool(found.unplaced) <= bool(found.remark)
