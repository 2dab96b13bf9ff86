"""Tests that watches keep the gate's cache up to date. If a watch may be late, the gate lists the objects again."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents.gate.cache import ClusterCache
from agents.gate.main import GateRun
from agents.gate.pods import BoundPod, Seating, is_incomplete
from agents.kube.client import Object
from agents.kube.errors import ApiError
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.items import ItemProblems
from tenancy.ledger import Ledger, Seat
from tests.support.exporters import card, measured
from tests.support.fake_cluster import DOMAIN, T4, Fault, Served
from tests.support.gating import ALWAYS, SETTINGS, TTS, add_deployment, add_journal, path_of, seat_pod, waiting

LEDGER = Ledger(domain=DOMAIN, pools=(T4,))
START = datetime(2026, 11, 20, 3, 0, tzinfo=UTC)


@dataclass
class Late:
    all_open: bool = True
    events: list[list[Object]] = field(default_factory=list)
    error: AgentError | None = None
    closed: bool = False

    def take(self, seconds: float) -> list[Object]:
        if self.error:
            raise self.error
        return self.events.pop(0) if self.events else []

    def close(self) -> None:
        self.closed = True


def cluster_cache(served: Served, **fields: Any) -> ClusterCache:
    log = served.log()
    problems = ItemProblems(log=log)
    return ClusterCache(
        api=served.api(), clock=Clock(), log=log, problems=problems, exporter_namespace="nodes", **fields
    )


@pytest.fixture
def cache(served: Served) -> Iterator[ClusterCache]:
    served.cluster.watches_last = True
    served.cluster.add_node()
    served.cluster.add_pod("a", "k8s-node1", "1000")
    found = cluster_cache(served)
    with closing(found):
        found.list_all(LEDGER)
        served.cluster.await_watches(2)
        served.cluster.requests.clear()
        yield found


def updated(served: Served, cache: ClusterCache) -> bool:
    """If a thread of a watch takes longer than the cache waits for an event, the event is still missing."""
    served.cluster.await_read()
    return cache.update(LEDGER)


def uids(cache: ClusterCache) -> list[str]:
    return sorted(pod.uid for pod in cache.pods)


def lists(served: Served) -> list[str]:
    read = [url for method, url in served.cluster.requests if method == "GET" and "watch=1" not in url]
    return [url for url in read if url.startswith(("/api/v1/nodes?", "/api/v1/pods?")) and "schedulerName" not in url]


def test_events_change_the_cache_without_a_list(served: Served, cache: ClusterCache) -> None:
    served.cluster.add_pod("b", "k8s-node1", "2000")
    assert updated(served, cache)
    assert {pod.uid: pod.declared_mib for pod in cache.pods} == {"uid-a": 1000, "uid-b": 2000}
    served.cluster.remove_pod("a")
    assert updated(served, cache)
    assert uids(cache) == ["uid-b"]
    assert served.cluster.requests == []


def test_a_node_that_leaves_the_pool_or_the_cluster_changes_the_selection(served: Served, cache: ClusterCache) -> None:
    served.cluster.add_node(labels={"gpu": "other"})
    assert not updated(served, cache)
    cache.list_all(LEDGER)
    assert (uids(cache), [node.labels for node in cache.nodes]) == ([], [{"gpu": "other"}])


@pytest.mark.parametrize(
    "fault", [Fault("GET", "/api/v1/nodes?watch", 410, "Expired"), Fault("GET", "/api/v1/pods?watch", 403)]
)
def test_a_watch_that_fails_or_expires_leaves_no_cache(served: Served, cache: ClusterCache, fault: Fault) -> None:
    served.cluster.faults = [fault]
    cache.list_all(LEDGER)
    assert not cache.update(LEDGER)
    assert not cache.update(LEDGER), "the cache stays out of date until the next list"
    served.cluster.faults = []
    cache.list_all(LEDGER)
    assert cache.update(LEDGER)


@pytest.mark.parametrize(
    "watches",
    [
        Late(all_open=False),
        Late(events=[[{"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {}}}]] * 1000),
        Late(error=AgentError("broken")),
        Late(error=ApiError("WATCH /api/v1/pods", 410, "Expired", "too old")),
    ],
)
def test_watches_that_are_not_up_to_date_leave_no_cache(served: Served, watches: Late) -> None:
    served.cluster.add_node()
    cache = cluster_cache(served, watch=lambda *_: watches)
    cache.list_all(LEDGER)
    assert not cache.update(LEDGER)
    assert watches.closed


def test_the_pods_of_few_nodes_are_watched_by_node_and_of_many_nodes_together(served: Served) -> None:
    watched: list[Any] = []

    def watch(api: object, clock: object, sources: Sequence[Any]) -> Late:
        watched[:] = [dict(source.parameters) for source in sources]
        return Late()

    cache = cluster_cache(served, watch=watch)
    for number in range(9):
        served.cluster.add_node(f"n{number}")
        served.cluster.add_pod(f"p{number}", f"n{number}", "1")
    served.cluster.add_node("without", labels={})
    served.cluster.add_pod("elsewhere", "without", "1")
    cache.list_all(LEDGER)
    assert len(watched) == 1 + 9
    assert uids(cache) == [f"uid-p{number}" for number in range(9)]
    served.cluster.add_node("n9")
    assert uids(cache) == [f"uid-p{number}" for number in range(9)]
    cache.list_all(LEDGER)
    assert watched == [{}, {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}]
    assert "uid-elsewhere" not in uids(cache)


POD = seat_pod("chat", 3000)


@pytest.mark.parametrize(
    ("now", "before", "watched", "incomplete"),
    [
        (Seating(pods=(POD,)), Seating(), (POD,), False),
        (Seating(pods=(POD,)), Seating(), (), True),
        (Seating(pods=(POD,)), Seating(pods=(POD,)), (), False),
        (Seating(), Seating(waiting=(waiting("chat", 1),)), (), True),
        (Seating(), Seating(waiting=(waiting("chat", 1),)), (POD,), False),
        (Seating(waiting=(waiting("chat", 1),)), Seating(waiting=(waiting("chat", 1),)), (), False),
    ],
)
def test_watches_that_lack_a_pod_that_may_run_are_incomplete(
    now: Seating, before: Seating, watched: tuple[BoundPod, ...], incomplete: bool
) -> None:
    assert is_incomplete(now, before, watched) is incomplete


@pytest.fixture
def gated(served: Served) -> Iterator[Served]:
    add_journal(served.cluster)
    add_deployment(served.cluster, TTS)
    served.cluster.watches_last = True
    with measured(served, card(4096)):
        yield served


def run_of(served: Served, watch: Callable[..., Any] | None = None, **changes: Any) -> GateRun:
    clock = Clock(monotonic=lambda: served.time.seconds, now=lambda: START + timedelta(seconds=served.time.seconds))
    served.cluster.now = clock.now()
    settings = replace(SETTINGS, exporter_port=served.exporter_port, **{"gates": (ALWAYS,), **changes})
    run = GateRun(settings=settings, api=served.api(), clock=clock, log=served.log())
    if watch is not None:
        run.cache.watch = watch
    return run


def sample(served: Served, run: GateRun) -> None:
    run.take()
    served.time.seconds += 10
    served.cluster.now = START + timedelta(seconds=served.time.seconds)


def opened(served: Served) -> bool:
    return bool(served.cluster.objects[path_of()]["spec"]["replicas"])


def test_each_sample_that_counts_towards_an_act_lists(gated: Served) -> None:
    with closing(run_of(gated)) as run:
        sample(gated, run)
        for counted in (2, 2, 0):
            gated.cluster.requests.clear()
            sample(gated, run)
            assert len(lists(gated)) == counted
    assert opened(gated)


def test_a_late_watch_opens_no_gate_into_the_memory_of_a_pod_that_it_does_not_show(gated: Served) -> None:
    """Before the gate starts a workload, it lists all pods."""
    with closing(run_of(gated, watch=lambda *_: Late())) as run:
        for _ in range(2):
            sample(gated, run)
        gated.cluster.add_pod("seat", "k8s-node1", "3000")
        sample(gated, run)
    assert not opened(gated)
    assert [line["cause"] for line in gated.lines() if line.get("gate")][-1] == "there is demand, but no room"


def test_a_list_that_fails_before_an_act_fails_the_sample(gated: Served) -> None:
    with closing(run_of(gated)) as run:
        for _ in range(2):
            sample(gated, run)
        gated.cluster.faults = [Fault("GET", "/api/v1/nodes", 410, "Expired", times=9)]
        with pytest.raises(ApiError, match="Expired"):
            sample(gated, run)
        assert (opened(gated), run.agreed) == (False, {})


def test_a_seat_that_waits_is_noticed_at_once_even_if_the_watches_are_late(gated: Served) -> None:
    with closing(run_of(gated, watch=lambda *_: Late())) as run:
        sample(gated, run)
        gated.cluster.add_ledger(T4, seats=(Seat(name="chat", tenant="immich", pool="t4", gpumem_mib=5000),))
        sample(gated, run)
        gated.cluster.add_pod("chat", "", "5000", phase="Pending")
        gated.cluster.pods[-1]["spec"]["schedulerName"] = "gpu-tenancy"
        gated.cluster.pods[-1]["metadata"]["creationTimestamp"] = "2026-11-20T03:00:00Z"
        sample(gated, run)
        assert [seat.uid for seat in run.seating.waiting] == ["uid-chat"]
        gated.cluster.pods[-1]["spec"]["nodeName"] = "k8s-node1"
        gated.cluster.requests.clear()
        sample(gated, run)
        assert [pod.uid for pod in run.seating.pods] == ["uid-127.0.0.1", "uid-chat"]
    assert len(lists(gated)) == 2, "the seat waits no longer, and no watch shows it on a node"
