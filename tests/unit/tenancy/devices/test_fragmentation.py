"""Tests the amount of stranded memory: memory that is free, but that the usual pods cannot use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.devices.allocate import MemoryRequest, best_fit
from tenancy.devices.fragmentation import PodMix

FREE = st.dictionaries(st.integers(0, 7), st.integers(0, 12), max_size=4)
ASKS = st.builds(MemoryRequest, st.integers(1, 12), st.integers(1, 3), st.integers(0, 4))
USUAL = st.lists(ASKS, min_size=1, max_size=6)


def test_memory_without_the_cpu_that_is_needed_next_to_it_is_stranded() -> None:
    mix = PodMix([MemoryRequest(4000, cpu_milli=2000), MemoryRequest(4000, cpu_milli=8000)])
    assert [mix.stranded_mib([8000], cpu) for cpu in (1999, 2000, 8000)] == [8000, 4000, 0]
    assert mix.stranded_mib([8000], None) == 0


def test_the_device_is_chosen_that_leaves_the_most_to_the_usual_pods() -> None:
    free = {0: 8000, 1: 6000}
    best, ours = (
        best_fit(MemoryRequest(4000), free),
        PodMix([MemoryRequest(4000)]).choice(MemoryRequest(4000), free, None),
    )
    assert best is not None
    assert ours is not None
    assert (best.indices, ours.indices) == ((1,), (0,))


def test_a_node_where_nothing_becomes_stranded_costs_less_than_one_where_little_does() -> None:
    mix = PodMix([MemoryRequest(4000)])
    clean, dirty = (
        mix.choice(MemoryRequest(4000), {0: 8000}, None),
        mix.choice(MemoryRequest(3999), {0: 8000 - 2}, None),
    )
    assert clean is not None
    assert dirty is not None
    assert clean.cost <= 0 < dirty.cost


def by_definition(usual: list[MemoryRequest], free: list[int], cpu: int) -> float:
    stranded = 0
    for request in usual:
        fitting = [mib for mib in free if mib >= request.mib]
        usable = len(fitting) >= request.count and cpu >= request.cpu_milli
        stranded += sum(free) - (sum(fitting) if usable else 0)
    return stranded / len(usual)


@given(USUAL, FREE, st.integers(0, 5))
def test_what_is_stranded_is_the_papers_expectation(usual: list[MemoryRequest], free: dict[int, int], cpu: int) -> None:
    expected = by_definition(usual, [*free.values()], cpu)
    assert PodMix(usual).stranded_mib(free.values(), cpu) == pytest.approx(expected)


@given(USUAL, ASKS, FREE, st.integers(0, 5))
def test_no_other_device_strands_less(
    usual: list[MemoryRequest], request: MemoryRequest, free: dict[int, int], cpu: int
) -> None:
    choice = PodMix(usual).choice(request, free, cpu)
    fitting = [index for index, mib in free.items() if mib >= request.mib]
    assert (choice is None) == (len(fitting) < request.count)
    if choice is None or request.count > 1:
        return

    def stranded(index: int) -> float:
        left = [mib - request.mib * (at == index) for at, mib in free.items()]
        return by_definition(usual, left, cpu - request.cpu_milli)

    assert stranded(choice.indices[0]) == pytest.approx(min(map(stranded, fitting)))
