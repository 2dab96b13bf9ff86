"""Calls the extender's filter and preempt without HTTP."""

from dataclasses import replace
from typing import Any

from agents.extender.cache.cache import Cache
from agents.extender.cache.informers import Informers
from agents.extender.cache.inventory import NodeDevices
from agents.extender.filter import PlacementVerbs
from agents.extender.protocol import PreemptRequest
from agents.extender.waiting import WaitingPods
from agents.kube.pods import Pod
from agents.runtime.clock import Clock
from tests.support.devices import bound, inventory
from tests.support.fake_cluster import NAMES, SYSTEM, Served


def devices(*mib: int, node: str = "a") -> NodeDevices:
    return replace(inventory(node, *mib), cpu_milli=9000)


def verbs_of(served: Served) -> PlacementVerbs:
    cache = Cache()
    clock = served.time.clock()
    informers = Informers(api=served.api(), cache=cache, ledger_namespace=SYSTEM, clock=clock, log=served.log())
    cache.update_node(devices(8000, 8000))
    return PlacementVerbs(
        informers=informers, cache=cache, waiting=waiting_pods(served, cache), hold_seconds=60,
        led_since=lambda: 0.0, tell=lambda _: None, clock=clock,
    )  # fmt: skip


def waiting_pods(served: Served, cache: Cache, clock: Clock | None = None) -> WaitingPods:
    return WaitingPods(
        cache=cache, ledger=lambda: None, nudge=lambda: None, serves=lambda: True,
        clock=clock or served.time.clock(), log=served.log(),
    )  # fmt: skip


def pod(mib: int | str, count: int = 1, priority: int = 0) -> dict[str, Any]:
    limits = {NAMES.gpumem: str(mib), NAMES.gpu_count: str(count)}
    return {
        "metadata": {"uid": "new", "namespace": "team"},
        "spec": {"priority": priority, "containers": [{"resources": {"limits": limits}}]},
    }


def hold(placing: PlacementVerbs, uid: str, mib: int, index: int, priority: int = 0, **fields: Any) -> None:
    placing.cache.update_pod(replace(bound(uid, "a", mib, index, priority=priority, **fields), namespace="n"))


def victims(placing: PlacementVerbs, mib: int, *given: str) -> tuple[str, ...] | None:
    query = PreemptRequest(Pod(pod(mib, priority=10)), {"a": given})
    return placing.victims(query, NAMES).get("a")
