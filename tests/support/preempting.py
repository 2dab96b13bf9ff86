"""Calls the extender's filter and preempt without HTTP."""

from dataclasses import replace
from typing import Any

from agents.extender.cache.cache import Cache
from agents.extender.cache.informers import Informers
from agents.extender.cache.inventory import NodeDevices
from agents.extender.filter import PlacementVerbs
from agents.extender.hold import SeatHolds
from agents.extender.protocol import PreemptRequest, Victims
from agents.kube.pods import Pod
from tests.support.devices import bound, inventory
from tests.support.fake_cluster import NAMES, SYSTEM, Served


def devices(*mib: int, node: str = "a") -> NodeDevices:
    return replace(inventory(node, *mib), cpu_milli=9000)


def verbs_of(served: Served) -> PlacementVerbs:
    cache = Cache()
    clock = served.time.clock()
    informers = Informers(api=served.api(), cache=cache, ledger_namespace=SYSTEM, clock=clock, log=served.log())
    cache.update_node(devices(8000, 8000))
    holds = SeatHolds(seconds=60, led_since=lambda: 0.0, clock=clock)
    return PlacementVerbs(informers=informers, cache=cache, holds=holds, tell=lambda _: None, clock=clock)


def pod(mib: int | str, count: int = 1, priority: int = 0) -> dict[str, Any]:
    limits = {NAMES.gpumem: str(mib), NAMES.gpu_count: str(count)}
    return {
        "metadata": {"uid": "new", "namespace": "team"},
        "spec": {"priority": priority, "containers": [{"resources": {"limits": limits}}]},
    }


def hold(placing: PlacementVerbs, uid: str, mib: int, index: int, priority: int = 0, **fields: Any) -> None:
    placing.cache.update_pod(replace(bound(uid, "a", mib, index, priority=priority, **fields), namespace="n"))


def victims(placing: PlacementVerbs, mib: int, *given: str, violations: int = 0) -> Victims | None:
    query = PreemptRequest(Pod(pod(mib, priority=10)), {"a": Victims(given, violations)})
    return placing.victims(query, NAMES).get("a")
