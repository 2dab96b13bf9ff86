"""What the scheduler is told of a pod."""

from dataclasses import replace
from typing import Any

import pytest

from agents.extender.cache.cache import Cache
from agents.extender.cache.informers import Informers
from agents.extender.cache.inventory import NodeDevice, NodeDevices
from agents.extender.cache.pod_info import AskError, PodInfo
from agents.extender.filter import RequestCache, Verbs
from agents.extender.protocol import PodNodes, PodVictims, Victims
from tenancy.devices.allocate import Ask
from tests.support.fake_cluster import NAMES, SYSTEM, Served


def devices(*mib: int) -> NodeDevices:
    each = tuple(NodeDevice(index, f"GPU-{index}", size) for index, size in enumerate(mib))
    return NodeDevices(node="a", pool="t4", devices=each)


@pytest.fixture
def placing(served: Served) -> Verbs:
    """A node `a` with two devices of 8000 MiB."""
    cache = Cache()
    clock = served.time.clock()
    informers = Informers(api=served.api(), cache=cache, ledger_namespace=SYSTEM, clock=clock, log=served.log())
    informers.known_devices["a"] = devices(8000, 8000)
    cache.update_node(informers.known_devices["a"])
    return Verbs(informers=informers, cache=cache, clock=clock)


def pod(mib: int | str, count: int = 1, priority: int = 0) -> dict[str, Any]:
    limits = {NAMES.gpumem: str(mib), NAMES.gpu_count: str(count)}
    return {
        "metadata": {"uid": "new"},
        "spec": {"priority": priority, "containers": [{"resources": {"limits": limits}}]},
    }


def hold(placing: Verbs, uid: str, mib: int, index: int, priority: int = 0) -> None:
    placing.cache.update_pod(
        PodInfo(
            uid=uid, namespace="n", name=uid, node="a", ask=Ask(mib), indices=(index,), uuids=(f"GPU-{index}",),
            priority=priority,
        )
    )  # fmt: skip


def victims(placing: Verbs, mib: int, *given: str, violations: int = 0) -> Victims | None:
    query = PodVictims(pod(mib, priority=10), {"a": Victims(given, violations)})
    return placing.victims(query, NAMES).get("a")


def test_a_pod_fits_where_one_device_has_room(placing: Verbs) -> None:
    assert placing.fits(PodNodes(pod(8000), ("a",)), NAMES).nodes == ("a",)
    assert placing.asks.of("new") == Ask(8000)


def test_a_pod_larger_than_any_device_is_hopeless_there(placing: Verbs) -> None:
    fits = placing.fits(PodNodes(pod(8001), ("a",)), NAMES)
    assert (fits.nodes, [*fits.refused], [*fits.hopeless]) == ((), [], ["a"])


def test_a_pod_without_gpumem_goes_anywhere(placing: Verbs) -> None:
    fits = placing.fits(PodNodes({"metadata": {"uid": "x"}, "spec": {}}, ("a", "b")), NAMES)
    assert fits.nodes == ("a", "b")


def test_a_request_that_cannot_be_shared_out_is_hopeless_everywhere(placing: Verbs) -> None:
    fits = placing.fits(PodNodes(pod(7, 2), ("a", "b")), NAMES)
    assert set(fits.hopeless) == {"a", "b"}
    with pytest.raises(AskError):
        placing.scores(PodNodes(pod(7, 2), ("a",)), NAMES)


def test_the_schedulers_victims_stand_where_their_going_frees_a_device(placing: Verbs) -> None:
    hold(placing, "one", 8000, 0)
    hold(placing, "two", 8000, 1)
    assert victims(placing, 8000, "two", violations=1) == Victims(("two",), 1)


def test_victims_who_free_no_device_are_replaced_by_those_who_do(placing: Verbs) -> None:
    hold(placing, "small", 4000, 0)
    hold(placing, "vip", 4000, 0, priority=99)
    hold(placing, "large", 8000, 1)
    assert victims(placing, 6000, "small") == Victims(("large",))


def test_a_node_where_nobodys_going_helps_is_no_candidate(placing: Verbs) -> None:
    hold(placing, "vip-0", 4000, 0, priority=99)
    hold(placing, "small", 4000, 0)
    hold(placing, "vip-1", 8000, 1, priority=99)
    assert victims(placing, 6000, "small") is None


def test_victims_for_the_sake_of_another_resource_are_added_to(placing: Verbs) -> None:
    """The sum of gpumem is there, so the scheduler's victim is about something else, CPU perhaps."""
    hold(placing, "cpu-hog", 1000, 0)
    hold(placing, "vip", 2000, 0, priority=99)
    hold(placing, "large", 4000, 1)
    assert victims(placing, 8000, "cpu-hog") == Victims(("cpu-hog", "large"))


def test_a_node_that_needs_no_victim_is_told_so(placing: Verbs) -> None:
    """A scheduler that knows of kubernetes#135486 asks about such nodes as well."""
    assert victims(placing, 8000) == Victims(())


def test_where_only_measurement_keeps_the_pod_out_and_nobody_can_go_the_node_is_left_out(placing: Verbs) -> None:
    """By the ledger the node is empty: the scheduler proposes no victims, and none would help."""
    placing.cache.measure("a", {0: 1000, 1: 1000}, at=0.0)
    placing.cache.update_node(replace(devices(8000), node="b"))
    query = PodVictims(pod(6000, priority=10), {"a": Victims(()), "b": Victims(())})
    assert placing.victims(query, NAMES) == {"b": Victims(())}


def test_whose_going_frees_what_is_measured_is_named(placing: Verbs) -> None:
    hold(placing, "small", 2000, 0)
    placing.cache.measure("a", {0: 4500, 1: 1000}, at=0.0)
    assert victims(placing, 6000) == Victims(("small",))


def test_room_that_comes_while_victims_are_chosen_leaves_the_node_out(placing: Verbs) -> None:
    """The scheduler ends a preemption on all nodes where victims that it proposed became none."""

    class Leaving(Cache):
        def pods(self, node: str) -> tuple[PodInfo, ...]:
            held = super().pods(node)
            self.remove_pod("large")
            return held

    cache = Leaving()
    cache.update_node(devices(8000, 8000))
    placing = replace(placing, cache=cache)
    hold(placing, "small", 2000, 0)
    hold(placing, "vip", 6000, 0, priority=99)
    hold(placing, "large", 8000, 1)
    assert victims(placing, 8000, "small") is None


def test_only_so_many_asks_are_remembered() -> None:
    asks = RequestCache()
    for number in range(10_001):
        asks.remember(str(number), Ask(1))
    assert (asks.of("0"), asks.of("1"), asks.of("10000")) == (None, Ask(1), Ask(1))
