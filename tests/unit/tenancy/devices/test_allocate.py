"""Tests the choice of devices for a request (docs/records/0003)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.devices.allocate import MemoryRequest, best_fit

FREE = st.dictionaries(st.integers(0, 15), st.integers(0, 40), max_size=8)
ASKS = st.builds(MemoryRequest, st.integers(1, 40), st.integers(1, 4))


def test_a_request_is_shared_out_in_equal_parts_of_whole_mib() -> None:
    assert MemoryRequest.of(8138, 2) == MemoryRequest(4069, 2)
    assert MemoryRequest(4069, 2).total_mib == 8138
    for total, count in ((8138, 3), (1, 2), (5, 0)):
        with pytest.raises(ValueError, match="cannot be shared out"):
            MemoryRequest.of(total, count)


@pytest.mark.parametrize(("mib", "count"), [(0, 1), (-1, 1), (1, 0)])
def test_nothing_cannot_be_asked_for(mib: int, count: int) -> None:
    with pytest.raises(ValueError, match="at least 1 MiB on at least one device"):
        MemoryRequest(mib, count)


@given(ASKS, FREE)
def test_no_device_that_fits_and_is_left_out_has_less_free(request: MemoryRequest, free: dict[int, int]) -> None:
    choice = best_fit(request, free)
    fitting = {index for index, mib in free.items() if mib >= request.mib}
    if choice is None:
        assert len(fitting) < request.count
        return
    chosen = set(choice.indices)
    assert len(chosen) == request.count
    assert chosen <= fitting
    assert all((free[a], a) < (free[b], b) for a in chosen for b in fitting - chosen)
    assert choice.cost == sum(free[index] - request.mib for index in chosen)
