"""Tests that watches keep the gate's cache up to date, and that the gate lists what the watches may lack."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents.gate.cache import ClusterCache
from agents.gate.main import GateRun
from agents.kube.client import Object
from agents.kube.errors import ApiError
from agents.kube.nodes import NODES
from agents.kube.pods import PODS
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.items import ItemProblems
from agents.telemetry.sampling import IncompletePassError
from tenancy.ledger import Ledger, Seat
from tests.support.exporters import add_exporter, card, measured
from tests.support.fake_cluster import DOMAIN, NAMES, T4, Fault, Served
from tests.support.gating import ALWAYS, SETTINGS, TTS, add_deployment, add_journal, path_of, reading, used

LEDGER = Ledger(domain=DOMAIN, pools=(T4,))
START = datetime(2026, 11, 20, 3, 0, tzinfo=UTC)


@dataclass
class Late:
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
        update(served, found, watches=0)
        served.cluster.requests.clear()
        yield found


def update(served: Served, cache: ClusterCache, *, watches: int = 3) -> None:
    served.cluster.await_watches(watches)
    served.cluster.await_read()
    cache.update(LEDGER)
    served.cluster.await_watches(3)


def pods(cache: ClusterCache, *using: str, listed: bool = False) -> dict[str, int]:
    telemetry = used(reading(9000, node="k8s-node1"), **dict.fromkeys(using, 100))
    return {pod.uid: pod.declared_mib for pod in cache.pods_on(telemetry, LEDGER, listed=listed)}


def lists(served: Served) -> list[str]:
    read = [url for method, url in served.cluster.requests if method == "GET" and "watch=1" not in url]
    return [url for url in read if url.startswith(("/api/v1/nodes?", "/api/v1/pods?")) and "schedulerName" not in url]


def test_events_change_the_cache_without_a_list(served: Served, cache: ClusterCache) -> None:
    served.cluster.add_pod("b", "k8s-node1", "2000")
    update(served, cache)
    assert pods(cache) == {"uid-a": 1000, "uid-b": 2000}
    served.cluster.remove_pod("a")
    served.cluster.add_node(labels={"gpu": "other"})
    update(served, cache)
    assert pods(cache) == {"uid-b": 2000}
    assert [node.labels for node in cache.nodes.kept.values()] == [{"gpu": "other"}]
    assert served.cluster.requests == []


def test_a_pod_that_reaches_no_gpu_is_neither_listed_nor_watched(served: Served, cache: ClusterCache) -> None:
    served.cluster.add_pod("other", "k8s-node1", "0")
    served.cluster.pods[-1]["metadata"]["labels"] = {}
    served.cluster.tell("MODIFIED", PODS, served.cluster.pods[-1])
    cache.close()
    update(served, cache, watches=0)
    assert pods(cache) == {"uid-a": 1000}
    assert [url for url in lists(served) if url.startswith("/api/v1/pods?") and "gpu-pod%3Dtrue" not in url] == []


def test_a_use_by_a_pod_without_the_label_lists_the_pods_of_its_node(served: Served, cache: ClusterCache) -> None:
    served.cluster.pods.append(json.loads(json.dumps(served.cluster.pods[-1])))
    served.cluster.pods[-1]["metadata"] |= {"name": "older", "uid": "uid-older", "labels": {}}
    update(served, cache)
    assert pods(cache, "uid-a") == {"uid-a": 1000}
    assert lists(served) == []
    assert pods(cache, "uid-a", "uid-older") == {"uid-a": 1000, "uid-older": 1000}
    assert ["nodeName%3Dk8s-node1" in url for url in lists(served)] == [True]


def test_a_list_before_an_act_has_the_pods_without_the_label(served: Served, cache: ClusterCache) -> None:
    served.cluster.pods[-1]["metadata"]["labels"] = {}
    cache.close()
    update(served, cache, watches=0)
    assert pods(cache) == {}
    assert pods(cache, listed=True) == {"uid-a": 1000}


def test_an_exporter_is_watched_in_its_namespace_alone(served: Served, cache: ClusterCache) -> None:
    add_exporter(served)
    exporter = served.cluster.pods[-1]
    for namespace in ("nodes", "tenant"):
        exporter["metadata"] |= {"namespace": namespace, "uid": namespace, "resourceVersion": "999"}
        served.cluster.tell("ADDED", PODS, exporter)
    update(served, cache)
    assert [*cache.exporters.kept] == [f"nodes/{exporter['metadata']['name']}"]
    exporter["metadata"] |= {"namespace": "nodes", "uid": "nodes"}
    served.cluster.tell("DELETED", PODS, exporter)
    update(served, cache)
    assert not cache.exporters.kept


@pytest.mark.parametrize("error", [AgentError("broken"), ApiError("WATCH /api/v1/pods", 410, "Expired", "too old")])
def test_after_a_watch_has_failed_or_expired_everything_is_listed_again(served: Served, error: AgentError) -> None:
    opened: list[Late] = []

    def watch(*_: object) -> Late:
        opened.append(Late())
        return opened[-1]

    served.cluster.add_node()
    cache = cluster_cache(served, watch=watch)
    cache.update(LEDGER)
    served.cluster.add_pod("a", "k8s-node1", "1000")
    cache.update(LEDGER)
    assert pods(cache) == {}, "a late watch shows nothing yet"
    opened[-1].error = error
    cache.update(LEDGER)
    assert pods(cache) == {"uid-a": 1000}
    assert [each.closed for each in opened] == [True, False]


def test_a_sample_applies_all_events_that_have_arrived_but_waits_for_no_pause(served: Served) -> None:
    """A watch decodes only a few events before the ones before are applied."""
    events: list[list[Object]] = []
    cache = cluster_cache(served, watch=lambda *_: Late(events=events))
    cache.update(LEDGER)
    for name in ("a", "b"):
        served.cluster.add_pod(name, "k8s-node1", "1000")
        events.append([{"type": "ADDED", "object": served.cluster.pods[-1]}])
    cache.update(LEDGER)
    assert pods(cache) == {"uid-a": 1000, "uid-b": 1000}
    events += [[{"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"name": "a"}}}]] * 1000
    cache.update(LEDGER)
    assert events, "the next sample goes on"


def test_another_resource_domain_lists_again(served: Served, cache: ClusterCache) -> None:
    cache.update(replace(LEDGER, domain="other.example"))
    assert pods(cache) == {"uid-a": 0}


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
        for counted in (2, 2, 0):  # of the nodes, and of the pods on the only node
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


def test_a_device_that_was_excluded_since_the_readings_opens_no_gate(gated: Served) -> None:
    with closing(run_of(gated)) as run:
        for _ in range(2):
            sample(gated, run)
        update, updates = run.cache.update, iter((False, True))

        def exclude_after_the_readings(ledger: Ledger) -> None:
            if next(updates):
                node = gated.cluster.nodes["k8s-node1"]
                node["metadata"] |= {"annotations": {NAMES.device_excluded: "0"}, "resourceVersion": "999"}
                gated.cluster.tell("MODIFIED", NODES, node)
                gated.cluster.await_read()
            update(ledger)

        run.cache.update = exclude_after_the_readings  # type: ignore[method-assign]
        with pytest.raises(IncompletePassError, match="a node has changed since the readings"):
            sample(gated, run)
    assert not opened(gated)


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
