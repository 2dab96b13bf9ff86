"""Tests how the extender compares its cache with the devices."""

from agents.extender.cache.cache import Cache
from agents.extender.cache.drift import Comparer
from agents.extender.cache.pod_info import PodInfo
from tests.support.devices import bound, inventory
from tests.support.fake_cluster import Served


def test_a_lost_device_is_counted_at_its_first_comparison_and_reported_at_its_second(served: Served) -> None:
    cache, lost = Cache(), list[PodInfo]()
    cache.update_node(inventory("N", 8000))
    cache.update_pod(bound("pod", "N", 5000, 1))
    comparer = Comparer(lost=lost.append, cache=cache, clock=served.time.clock(), log=served.log())
    comparer.pass_once()
    assert comparer.counts() == {"unplaced": 0, "adrift": 1, "over": 0, "outside": 0}
    assert (served.lines(), lost) == ([], [])
    comparer.pass_once()
    (line,) = served.lines()
    assert (line["message"], line["adrift"]) == ("the cache drifts", ["tenant/pod"])
    assert [pod.uid for pod in lost] == ["pod"]
