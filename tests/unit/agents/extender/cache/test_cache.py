"""Tests the extender's cache with filters, binds, watch events, lists, readings and preemptions."""

from dataclasses import replace

import pytest

from agents.extender.cache.cache import MEASURED_SECONDS, RESERVE_SECONDS, SHOWN_SECONDS, Cache
from agents.extender.cache.drift import DeviceDrift, Drift, drift_of
from agents.extender.cache.inventory import NodeDevice, NodeDevices
from agents.extender.cache.pod_info import PodInfo, PodWithoutGpu
from agents.extender.cache.search import Answer
from tenancy.devices.allocate import MemoryRequest, Scoring
from tests.support.devices import bound, cache_of, inventory, take, victims


def example() -> Cache:
    cache = cache_of(*(inventory(node, 16276, 16276) for node in ("N1", "N2", "N3")))
    for node, *held in (("N1", 16276, 12207), ("N2", 12207, 12207), ("N3", 8138, 16276)):
        for index, mib in enumerate(held):
            cache.update_pod(bound(f"{node}-{index}".lower(), node, mib, index))
    return cache


def free(cache: Cache, node: str = "N") -> list[int]:
    (usage,) = (usage for usage in cache.snapshot() if usage.node == node)
    return [device.room_mib for device in usage.devices]


# Filter.


def test_of_record_0003s_nodes_only_the_one_whose_device_has_room_passes() -> None:
    assert example().fit("pod", MemoryRequest(8138), ["N1", "N2", "N3"], 0.0) == Answer(("N3",), {}, {})
    why = "its largest GPU has 4069 MiB free, not 8138"
    assert example().fit("pod", MemoryRequest(8138), ["N1", "N2"], 0.0) == Answer((), {"N1": why, "N2": why}, {})


AILING = (NodeDevice(0, "GPU-N-0", 8000, healthy=False), NodeDevice(1, "GPU-N-1", 9000, excluded=True))


@pytest.mark.parametrize(
    ("node", "wanted", "reason"),
    [
        (inventory("N", 16276, 16276), MemoryRequest(16277), "its largest GPU has 16276 MiB to share, not 16277"),
        (inventory("N", 16276, 16276), MemoryRequest(1, 3), "has 2 of 3 GPUs"),
        (
            NodeDevices(node="N", pool="t4", devices=AILING),
            MemoryRequest(1),
            "its largest GPU has 0 MiB to share, not 1",
        ),
        (
            NodeDevices(node="N", pool="t4", unusable="its devices are not published"),
            MemoryRequest(1),
            "its devices are not pub",
        ),
        (inventory("other", 8000), MemoryRequest(1), "has no GPU memory to share that is known"),
    ],
    ids=["too large", "too few", "unhealthy and excluded", "unusable", "unknown"],
)
def test_a_node_that_could_not_take_the_pod_if_it_were_empty_is_hopeless(
    node: NodeDevices, wanted: MemoryRequest, reason: str
) -> None:
    cache = cache_of(node)
    cache.update_pod(bound("pod", "N", 5000, 0))
    fits = cache.fit("new", wanted, ["N"], 0.0)
    assert (fits.nodes, fits.refused, [*fits.hopeless]) == ((), {}, ["N"])
    assert fits.hopeless["N"].startswith(reason)
    assert cache.assume("new", wanted, "N", 0.0) == fits
    assert victims(cache, wanted, "N", {"pod"}) is None


def test_the_node_that_suits_best_is_the_answer_and_the_first_by_name_of_equals() -> None:
    cache = cache_of(inventory("loose", 16000), inventory("tight", 8100))
    assert cache.fit("pod", MemoryRequest(8000), ["loose", "tight", "unknown"], 0.0).nodes == ("tight",)
    cache = cache_of(*(inventory(name, 8000) for name in "ABC"))
    assert cache.fit("pod", MemoryRequest(8000), ["C", "B"], 0.0).nodes == ("B",)
    assert [free(cache, name) for name in "ABC"] == [[8000], [0], [8000]]


# Tests of the memory that the extender reserves for a pod between the pod's filter and its bind.


def test_two_filters_do_not_get_the_same_room_until_the_reservation_ends() -> None:
    cache = cache_of(inventory("A", 8000), inventory("B", 8000))
    assert cache.fit("one", MemoryRequest(8000), ["A", "B"], 0.0).nodes == ("A",)
    assert cache.fit("two", MemoryRequest(8000), ["A", "B"], 1.0).nodes == ("B",)
    assert cache.fit("three", MemoryRequest(8000), ["A", "B"], RESERVE_SECONDS - 0.1).nodes == ()
    assert cache.fit("three", MemoryRequest(8000), ["A", "B"], RESERVE_SECONDS).nodes == ("A",)


# By fragmentation.


@pytest.mark.parametrize(("scoring", "index", "node"), [(Scoring.BEST_FIT, 1, "six"), (Scoring.FRAGMENTATION, 0, "8")])
def test_the_usual_pods_are_those_that_are_bound(scoring: Scoring, index: int, node: str) -> None:
    """If most pods request 4000 MiB, FRAGMENTATION prefers a device of 8000 MiB to a device of 6000 MiB."""
    cache = Cache(scoring)
    nodes = [inventory("N", 8000, 6000), inventory("six", 6000), inventory("8", 8000)]
    cache.replace(nodes, [bound("usual", "other", 4000, 0)], since=0.0)
    assert take(cache, "pod", MemoryRequest(4000), "N").indices == (index,)
    assert cache.fit("next", MemoryRequest(4000), ["six", "8"], 0.0).nodes == (node,)


def test_a_node_whose_cpu_bystanders_have_is_better_for_a_pod_that_fits_it() -> None:
    """If pods without GPU memory use all CPU of a node, no later pod can use the node's GPU memory."""
    cache = Cache(Scoring.FRAGMENTATION)
    nodes = [replace(inventory(name, 16000), cpu_milli=8000) for name in ("A", "B")]
    usual = PodInfo(uid="usual", node="other", request=MemoryRequest(5000, cpu_milli=4000), indices=(0,))
    cache.replace(nodes, [usual], since=0.0)
    small = MemoryRequest(2000, cpu_milli=1000)
    assert cache.fit("pod", small, ["A", "B"], 0.0).nodes == ("A",)
    cache.update_pod(PodWithoutGpu(uid="plain", node="B", cpu_milli=6000))
    assert cache.fit("pod", small, ["A", "B"], 0.0).nodes == ("B",)
    cache.remove_pod("plain")
    assert cache.fit("pod", small, ["A", "B"], 0.0).nodes == ("A",)


# Watch events.


def test_a_pod_whose_device_is_unknown_counts_where_it_would_be_put() -> None:
    cache = cache_of(inventory("N", 8000, 4000))
    cache.update_pod(bound("lost", "N", 3000))
    assert free(cache) == [8000, 1000]
    assert drift_of(cache.snapshot()) == Drift(unplaced=(bound("lost", "N", 3000),))
    cache.update_pod(bound("lost", "N", 9000))  # no device of the node has 9000 MiB free
    assert free(cache) == [0, 4000]


# Tests of lists from the API.


def test_room_for_a_pod_that_came_and_went_unseen_is_freed_in_the_end() -> None:
    """A pod was bound and deleted while the extender's watch was broken."""
    cache = cache_of(inventory("N", 8000))
    take(cache, "pod", MemoryRequest(5000), "N", 1.0)
    cache.finish_binding("pod", 3.0)
    cache.replace([inventory("N", 8000)], [], since=4.0)
    assert cache.fit("other", MemoryRequest(8000), ["N"], 2.0 + SHOWN_SECONDS).nodes == ()
    assert cache.fit("other", MemoryRequest(8000), ["N"], 3.0 + SHOWN_SECONDS).nodes == ("N",)


# Readings.


def test_memory_that_an_outsider_uses_is_not_offered() -> None:
    cache = cache_of(inventory("N", 14000, 14000, floor_mib=1536))
    cache.measure("N", {0: 5000, 1: 3000}, 0.0)
    why = "its largest GPU has 3464 MiB free, not 4000, as measured and less the floor"
    assert cache.fit("pod", MemoryRequest(4000), ["N"], 0.0).refused == {"N": why}
    assert drift_of(cache.snapshot()).outside == (DeviceDrift("N", 0, 9000), DeviceDrift("N", 1, 11000))


def test_a_reading_counts_for_its_time_and_adds_no_room_to_the_ledgers() -> None:
    cache = cache_of(inventory("N", 14000))
    cache.measure("N", {0: 0}, 1.0)
    assert cache.fit("pod", MemoryRequest(1), ["N"], MEASURED_SECONDS).nodes == ()
    assert cache.fit("pod", MemoryRequest(1), ["N"], MEASURED_SECONDS + 1).nodes == ("N",)
    cache.update_pod(bound("pod", "N", 13000, 0))
    cache.measure("N", {0: 15000}, MEASURED_SECONDS + 1)
    assert free(cache) == [1000]


# Victims.


def test_pods_on_unknown_or_unhealthy_devices_do_not_leave() -> None:
    cache = cache_of(inventory("N", 8000))
    cache.update_pod(bound("lost", "N", 8000))
    assert victims(cache, MemoryRequest(1), "N", {"lost"}) is None
    devices = (NodeDevice(0, "GPU-N-0", 8000, healthy=False), NodeDevice(1, "GPU-N-1", 8000))
    cache = cache_of(NodeDevices(node="N", pool="t4", devices=devices))
    cache.update_pod(bound("ailing", "N", 8000, 0))
    cache.update_pod(bound("well", "N", 8000, 1))
    assert victims(cache, MemoryRequest(1), "N", {"ailing", "well"}) == ("well",)


def test_a_node_stays_as_it_was_read_while_the_cache_changes() -> None:
    """A scrape reads all nodes without holding the cache's lock."""
    cache = cache_of(inventory("N", 8000, 4000))
    cache.update_pod(bound("pod", "N", 5000, 0))
    (seen,) = cache.snapshot()
    before = seen.devices
    take(cache, "more", MemoryRequest(1000), "N")
    cache.remove_pod("pod")
    cache.update_node(inventory("N", 2000))
    assert seen.devices == before
    assert cache.node("N").devices != before
