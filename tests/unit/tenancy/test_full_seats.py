"""Tests how much memory stays free if every seat uses its whole budget."""

from dataclasses import replace
from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from tenancy.full_seats import full_seats
from tenancy.ledger import Ledger, QueueQuota, Seat
from tests.support.graphs import GPUMEM, LEDGER, T4


def test_prods_numbers_end_eighty_mib_under_the_floor() -> None:
    """The numbers are those of docs/records/0000."""
    full = full_seats(LEDGER, T4)
    assert (full.promised_mib, full.beside_mib, full.reserve_short_mib) == (13300, 604, -756)
    assert (full.free_mib, T4.floor_mib - full.free_mib) == (1456, 80)
    assert full.over_mib == -524


def test_the_last_mib_that_the_floor_allows_and_the_first_that_it_does_not() -> None:
    def over(mib: int) -> int:
        seats = (Seat(name="all", tenant="x", pool="t4", gpumem_mib=mib),)
        return full_seats(replace(LEDGER, seats=seats), T4).over_mib

    assert (over(13824), over(13825)) == (0, 1)


def test_a_device_holds_a_pod_of_several_devices_once() -> None:
    pair = (Seat(name="pair", tenant="x", pool="t4", gpumem_mib=5000, replicas=2, devices_per_pod=2),)
    two = replace(T4, device_count=2)
    assert full_seats(replace(LEDGER, pools=(two,), seats=pair), two).promised_mib == 10000


def test_what_a_queue_hands_out_may_be_of_any_size() -> None:
    quota = QueueQuota(queue="q", flavor="f", pool="t4", resource=GPUMEM, nominal=600)
    assert full_seats(replace(LEDGER, quotas=(quota,)), T4).promised_mib == 13900
    two = replace(T4, device_count=2)
    assert full_seats(replace(LEDGER, pools=(two,), quotas=(replace(quota, nominal=5000),)), two).promised_mib == 14000


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 3)), max_size=5), st.integers(1, 40))
def test_the_fullest_device_holds_the_largest_sum_of_seats_that_fits_it(
    sizes: list[tuple[int, int]], device_mib: int
) -> None:
    pool = replace(T4, nodes=9, memory_mib=device_mib, reserve_mib=0, driver_reserved_mib=0, floor_mib=0)
    seats = tuple(
        Seat(name=f"s{n}", tenant="x", pool="t4", gpumem_mib=mib, replicas=replicas)
        for n, (mib, replicas) in enumerate(sizes)
    )
    each = [mib for mib, replicas in sizes for _ in range(replicas)]
    subsets = chain.from_iterable(combinations(each, count) for count in range(len(each) + 1))
    most = max(total for subset in subsets if (total := sum(subset)) <= device_mib)
    assert full_seats(Ledger(domain="d", pools=(pool,), seats=seats), pool).promised_mib == most
