"""Compares the search for a placement of seats with all possible placements."""

from collections import Counter
from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from tenancy.devices.placement import Bin, Impossible, Item, Placement, fits_on_equal_devices, place


def items(*sizes: int) -> list[Item]:
    return [Item(f"s{index}", mib) for index, mib in enumerate(sizes)]


def devices(*sizes: int) -> list[Bin]:
    return [Bin(f"d{index}", mib) for index, mib in enumerate(sizes)]


def by_trying_everything(needs: list[int], sizes: list[int]) -> bool:
    return any(
        all(
            sum(need for need, at in zip(needs, chosen, strict=True) if at == index) <= size
            for index, size in enumerate(sizes)
        )
        for chosen in product(range(len(sizes)), repeat=len(needs))
    )


NEEDS = st.lists(st.integers(1, 12), max_size=6)
SIZES = st.lists(st.integers(0, 20), min_size=1, max_size=3)


@given(NEEDS, SIZES)
def test_it_says_what_trying_everything_says(needs: list[int], sizes: list[int]) -> None:
    outcome = place(items(*needs), devices(*sizes))
    assert isinstance(outcome, Placement if by_trying_everything(needs, sizes) else Impossible)


@given(NEEDS, SIZES)
def test_a_placement_holds_every_item_once_and_no_device_more_than_it_has(needs: list[int], sizes: list[int]) -> None:
    outcome = place(items(*needs), devices(*sizes))
    if isinstance(outcome, Placement):
        assert [device for device, _ in outcome.assignments] == devices(*sizes)
        assert all(sum(item.mib for item in held) <= device.mib for device, held in outcome.assignments)
        assert sorted((item.name for _, held in outcome.assignments for item in held)) == sorted(
            item.name for item in items(*needs)
        )


@given(NEEDS, SIZES)
def test_a_counter_example_does_not_fit_and_every_smaller_part_of_it_does(needs: list[int], sizes: list[int]) -> None:
    outcome = place(items(*needs), devices(*sizes))
    if isinstance(outcome, Impossible):
        shown = [item.mib for item in outcome.items]
        assert not by_trying_everything(shown, sizes)
        for part in combinations(shown, len(shown) - 1):
            assert by_trying_everything(list(part), sizes)


def test_record_0003_a_node_with_room_in_sum_and_on_no_device() -> None:
    assert place(items(8138), devices(4069, 4069)) == Impossible(
        (Item("s0", 8138),), "1 of 8138 MiB or more need a device with 8138 free; only 0 have it"
    )
    assert isinstance(place(items(8138), devices(8138, 0)), Placement)


def test_several_fit_on_a_device_and_still_one_is_too_many() -> None:
    outcome = place(items(4000, 4000, 4000, 4000, 4000, 4000, 4000), devices(14000, 14000))
    assert isinstance(outcome, Impossible)
    assert outcome.reason == "7 of 4000 MiB or more; the devices have room for 6 of that size"


def test_no_bound_breaks_and_yet_no_arrangement_fits() -> None:
    outcome = place(items(7300, 7300, 5000, 3000, 2000, 1800, 1500), devices(14000, 14000))
    assert isinstance(outcome, Impossible)
    assert outcome.reason.endswith("but no arrangement puts each on one device; all were tried")


def test_nothing_fits_anywhere_and_something_fits_nowhere() -> None:
    assert place([], devices(5)) == Placement(((Bin("d0", 5), ()),))
    assert isinstance(place(items(1), []), Impossible)


def test_without_enough_steps_it_reports_it() -> None:
    hard = items(7, 7, 7, 5, 5, 5, 4, 4, 4, 3, 3, 3, 3)
    assert place(hard, devices(15, 15, 15, 15), steps=1) is None
    assert place(hard, devices(15, 15, 15, 15)) is not None


@given(st.lists(st.integers(1, 30), min_size=1, max_size=14), st.integers(30, 40), st.integers(1, 6))
def test_counted_by_size_it_is_the_tightest_device_for_each_in_turn(sizes: list[int], device: int, count: int) -> None:
    free = [device] * count
    placed = True
    for size in sorted(sizes, reverse=True):
        roomy = [space for space in free if space >= size]
        placed = placed and bool(roomy)
        if roomy:
            free[free.index(min(roomy))] -= size
    assert fits_on_equal_devices(Counter(sizes), device, count) == placed
