"""Which devices an ask gets, by record 0003's rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.devices.allocate import Ask, DeviceChoice, best_fit

FREE = st.dictionaries(st.integers(0, 15), st.integers(0, 40), max_size=8)
ASKS = st.builds(Ask, st.integers(1, 40), st.integers(1, 4))


def test_record_0003s_request_goes_to_the_device_with_the_least_that_fits() -> None:
    assert best_fit(Ask(8138), {0: 12207, 1: 8138, 2: 4069, 3: 16276}) == DeviceChoice((1,), 0)


def test_equal_devices_are_taken_by_their_index() -> None:
    assert best_fit(Ask(4000), {2: 8000, 0: 9000, 1: 8000}) == DeviceChoice((1,), 4000)


def test_several_devices_are_told_in_the_order_of_their_indices() -> None:
    assert best_fit(Ask(4000, 2), {0: 9000, 1: 5000, 2: 4000}) == DeviceChoice((1, 2), 1000)


def test_one_device_too_few_is_none() -> None:
    assert best_fit(Ask(4000, 2), {0: 3999, 1: 5000}) is None
    assert best_fit(Ask(1), {}) is None


def test_a_request_is_shared_out_in_equal_parts_of_whole_mib() -> None:
    assert Ask.of(8138, 2) == Ask(4069, 2)
    assert Ask(4069, 2).total_mib == 8138
    for total, count in ((8138, 3), (1, 2), (5, 0)):
        with pytest.raises(ValueError, match="cannot be shared out"):
            Ask.of(total, count)


@pytest.mark.parametrize(("mib", "count"), [(0, 1), (-1, 1), (1, 0)])
def test_nothing_cannot_be_asked_for(mib: int, count: int) -> None:
    with pytest.raises(ValueError, match="at least 1 MiB on at least one device"):
        Ask(mib, count)


@given(ASKS, FREE)
def test_no_device_that_fits_and_is_left_out_has_less_free(ask: Ask, free: dict[int, int]) -> None:
    choice = best_fit(ask, free)
    fitting = {index for index, mib in free.items() if mib >= ask.mib}
    if choice is None:
        assert len(fitting) < ask.count
        return
    chosen = set(choice.indices)
    assert len(chosen) == ask.count
    assert chosen <= fitting
    assert all((free[a], a) < (free[b], b) for a in chosen for b in fitting - chosen)
    assert choice.cost == sum(free[index] - ask.mib for index in chosen)
