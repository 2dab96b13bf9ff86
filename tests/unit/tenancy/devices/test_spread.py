"""Compares the placement of pods with several devices with all possible placements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.devices.placement import Bin, Impossible, Item, Placement
from tenancy.devices.spread import AlikeNodes, fits_on_separate_nodes, most_pods, place_on_nodes
from tests.support import search
from tests.support.placements import Nodes, Requests, by_trying_everything


def items(requests: Requests) -> list[Item]:
    return [Item(f"s{index}", mib, devices) for index, (mib, devices) in enumerate(requests)]


def bins(nodes: Nodes) -> list[list[Bin]]:
    return [[Bin(f"n{n}-{d}", mib) for d, mib in enumerate(node)] for n, node in enumerate(nodes)]


REQUESTS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), max_size=6).map(tuple)
NODES = st.lists(st.lists(st.integers(0, 14), min_size=1, max_size=4).map(tuple), min_size=1, max_size=3).map(tuple)


@search.examples(100, soak=20_000)
@given(REQUESTS, NODES)
def test_it_finds_what_trying_everything_finds(requests: Requests, nodes: Nodes) -> None:
    outcome = place_on_nodes(items(requests), bins(nodes))
    empty = tuple(sorted(tuple(sorted(node)) for node in nodes))
    assert isinstance(outcome, Placement if by_trying_everything(requests, empty) else Impossible)


@given(REQUESTS, NODES)
def test_a_pod_is_on_as_many_devices_of_one_node_as_it_has(requests: Requests, nodes: Nodes) -> None:
    outcome = place_on_nodes(items(requests), bins(nodes))
    if isinstance(outcome, Placement):
        assert [device for device, _ in outcome.assignments] == [device for node in bins(nodes) for device in node]
        assert all(sum(item.mib for item in held) <= device.mib for device, held in outcome.assignments)
        for item in items(requests):
            on = [device.name for device, held in outcome.assignments if item in held]
            assert len(on) == item.devices == sum(held.count(item) for _, held in outcome.assignments)
            assert len({name.split("-")[0] for name in on}) == 1


@given(REQUESTS, NODES)
def test_a_counter_example_does_not_fit(requests: Requests, nodes: Nodes) -> None:
    outcome = place_on_nodes(items(requests), bins(nodes))
    if isinstance(outcome, Impossible):
        shown = tuple((item.mib, item.devices) for item in outcome.items)
        assert not by_trying_everything(shown, tuple(sorted(tuple(sorted(node)) for node in nodes)))


def test_three_pods_of_two_devices_do_not_fit_two_nodes_of_three_though_the_sum_does() -> None:
    outcome = place_on_nodes([Item("big", 20000, 2)] * 3, [[Bin("", 23040)] * 3] * 2)
    assert outcome == Impossible(
        (Item("big", 20000, 2),) * 3,
        "3 pods with 20000 MiB or more on 2 or more devices of a node; the nodes have room for 2",
    )


def test_only_an_arrangement_that_was_not_found_at_first_fits() -> None:
    nodes = ((5, 5, 5), (5, 5))
    outcome = place_on_nodes(items(((5, 3), (5, 2))), bins(nodes))
    assert isinstance(outcome, Placement)
    outcome = place_on_nodes(items(((4, 2), (3, 3), (2, 1), (2, 1))), bins(((5, 5, 5), (4, 4))))
    assert isinstance(outcome, Placement)


def test_without_steps_nothing_is_claimed() -> None:
    many = items(tuple((7 + 3 * n % 11, 2 + n % 3) for n in range(12)))
    assert place_on_nodes(many, [[Bin("", 31)] * 4] * 4, steps=20) is None


@given(st.lists(st.integers(0, 6), max_size=5), st.integers(1, 4))
def test_the_most_pods_of_a_node_are_those_that_trying_everything_finds(places: list[int], devices: int) -> None:
    node = (tuple(sorted(places)),)
    most = next(n for n in range(sum(places) + 1, -1, -1) if by_trying_everything(((1, devices),) * n, node))
    assert most_pods(places, devices) == most


SEATS = st.dictionaries(st.tuples(st.integers(1, 9), st.integers(1, 4)), st.integers(1, 2), max_size=4)
SIZES = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 14))


@given(SEATS, SIZES)
def test_what_fits_with_nodes_apart_fits(seats: dict[tuple[int, int], int], size: tuple[int, int, int]) -> None:
    nodes, device_count, device_mib = size
    if fits_on_separate_nodes(seats, AlikeNodes(nodes=nodes, device_count=device_count, device_mib=device_mib)):
        requests = tuple(each for each, count in seats.items() for _ in range(count))
        assert by_trying_everything(requests, ((device_mib,) * device_count,) * nodes)


@pytest.mark.parametrize("pods", [4000, 100_000])
def test_many_pods_of_two_devices_are_placed_at_once(pods: int) -> None:
    alike = AlikeNodes(nodes=pods // 4, device_count=8, device_mib=40_000)
    assert fits_on_separate_nodes({(40_000, 2): pods}, alike)
    assert not fits_on_separate_nodes({(40_000, 2): pods + 1}, alike)
