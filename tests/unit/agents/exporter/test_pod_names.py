"""What the API tells the exporter: by watches, kept while the API is away."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from agents.exporter.pod_names import Recycle, Registrar
from agents.telemetry.resourceslice import SLICES
from tests.support.fake_cluster import LABELS, NAMES, SYSTEM, T4, Fault, Served
from tests.support.informing import HurriedTime, eventually, running
from tests.unit.agents.node.test_pods import CHAT

NODE = "k8s-node1"
CONFIG_MAPS = f"/api/v1/namespaces/{SYSTEM}/configmaps"
JOURNAL_NAME = "gpu-vram-watchdog-journal"
JOURNAL = f"{CONFIG_MAPS}/{JOURNAL_NAME}"
SLICE = f"{NAMES.device_driver}-{NODE}"


def pod(name: str = "chat-0", **changes: Any) -> dict[str, Any]:
    found = json.loads(json.dumps({"kind": "Pod", **CHAT, **changes}))
    found["metadata"] |= {"name": name, "uid": f"uid-{name}", "resourceVersion": "50"}
    return dict(found)


def registrar(served: Served, *, slices: bool = False) -> Registrar:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    served.cluster.pods.append(pod())
    clock = HurriedTime().clock()
    api = served.api(clock=clock)
    return Registrar(api=api, node=NODE, ledger_namespace=SYSTEM, clock=clock, log=served.log(), slices=slices)


@contextmanager
def kept(served: Served, *, slices: bool = False) -> Iterator[Registrar]:
    found = registrar(served, slices=slices)
    with running(found.informer, served.cluster, watches=5 if slices else 4):
        yield found


def declared(found: Registrar) -> list[tuple[str, int]]:
    return [(each.name, each.declared_mib) for each in found.last.roster.pods]


def test_it_knows_the_pods_with_their_budgets_the_ledger_and_the_nodes_own_pool(served: Served) -> None:
    with kept(served) as found:
        assert declared(found) == [("chat-0", 5000)]
        assert found.last.ledger is not None
        assert found.last.ledger.names == NAMES
        assert found.last.node is not None
        assert (found.last.node.uid, found.last.pool) == (f"uid-{NODE}", T4)


def test_pods_come_change_and_go(served: Served) -> None:
    with kept(served) as found:
        served.cluster.pods.append(pod("chat-1", status={"phase": "Pending"}))
        served.cluster.tell("ADDED", "/api/v1/pods", served.cluster.pods[-1] | {"metadata": newer("chat-1", served)})
        eventually(lambda: len(found.last.roster.pods) == 2)
        started = pod("chat-1") | {"metadata": newer("chat-1", served)}
        served.cluster.tell("MODIFIED", "/api/v1/pods", started)
        eventually(lambda: found.last.roster.pods[-1].containers)
        served.cluster.tell("DELETED", "/api/v1/pods", started | {"metadata": newer("chat-1", served)})
        eventually(lambda: declared(found) == [("chat-0", 5000)])


def newer(name: str, served: Served) -> dict[str, Any]:
    return {**pod(name)["metadata"], "resourceVersion": served.cluster.next_version()}


def test_a_ledger_that_is_deleted_leaves_names_and_no_budgets_and_a_new_one_brings_them_back(served: Served) -> None:
    with kept(served) as found:
        served.cluster.delete_ledger()
        eventually(lambda: declared(found) == [("chat-0", 0)])
        assert found.last.ledger is None
        served.cluster.add_ledger(T4)
        eventually(lambda: declared(found) == [("chat-0", 5000)])


def test_a_ledger_that_cannot_be_read_leaves_the_last(served: Served) -> None:
    with kept(served) as found:
        served.cluster.add_ledger(text="{")
        eventually(lambda: any("is not JSON" in line["message"] for line in served.lines()))
        assert declared(found) == [("chat-0", 5000)]


def test_a_node_that_is_relabelled_is_of_another_pool(served: Served) -> None:
    with kept(served) as found:
        served.cluster.add_node(labels={"zone": "elsewhere"})
        eventually(lambda: found.last.pool is None)
        served.cluster.add_node(labels=LABELS)
        eventually(lambda: found.last.pool == T4)


def test_the_nodes_slices_are_watched_only_where_they_are_published(served: Served) -> None:
    with kept(served) as found:
        assert not any(SLICES in url for _, url in served.cluster.requests)
        assert found.last.slices == {}


def test_a_slice_comes_and_goes(served: Served) -> None:
    stored = {"kind": "ResourceSlice", "metadata": {"name": SLICE, "resourceVersion": "60"}, "spec": {}}
    served.cluster.objects[f"{SLICES}/{SLICE}"] = stored
    with kept(served, slices=True) as found:
        assert found.last.slices == {SLICE: stored}
        gone = {**stored, "metadata": {"name": SLICE, "resourceVersion": served.cluster.next_version()}}
        served.cluster.tell("DELETED", SLICES, gone)
        eventually(lambda: found.last.slices == {})


def test_the_watchdogs_journal_is_followed(served: Served) -> None:
    with kept(served) as found:
        assert found.last.recycled is None
        data = {"journal.json": json.dumps({"recycled": [{"at": "2026-06-02T12:00:00+00:00", "workload": "a/b/c"}]})}
        metadata = {"name": JOURNAL_NAME, "resourceVersion": served.cluster.next_version()}
        served.cluster.tell("ADDED", CONFIG_MAPS, {"kind": "ConfigMap", "metadata": metadata, "data": data})
        eventually(lambda: found.last.recycled == (Recycle(datetime(2026, 6, 2, 12, tzinfo=UTC), "a"),))


@pytest.mark.parametrize(
    ("data", "recycled"),
    [
        ({}, ()),
        ({"journal.json": "torn"}, None),
        ({"journal.json": '{"recycled":[{"at":"yesterday","workload":"a/b/c"}]}'}, None),
    ],
)
def test_a_journal_is_there_empty_or_cannot_be_read(
    served: Served, data: dict[str, str], recycled: tuple[Recycle, ...] | None
) -> None:
    served.cluster.objects[JOURNAL] = {"metadata": {"name": JOURNAL_NAME, "resourceVersion": "1"}, "data": data}
    with kept(served) as found:
        assert found.last.recycled == recycled
        assert found.last.ledger is not None


def test_an_api_that_is_away_leaves_the_last_answer_which_grows_old(served: Served) -> None:
    time = HurriedTime()
    found = registrar(served)
    found.clock = found.informer.clock = time.clock()
    with running(found.informer, served.cluster, watches=4):
        last = found.last
        served.cluster.faults.append(Fault("GET", CONFIG_MAPS, 403, "Forbidden", "no right", times=10**6))
        served.cluster.end_open_watches()
        eventually(lambda: any("no right" in line["message"] for line in served.lines()))
        time.ahead_seconds = 40.0
        assert found.last is last
        assert found.age_seconds >= 40


def test_before_the_first_answer_the_age_counts_from_the_start(served: Served) -> None:
    time = served.time.clock()
    found = Registrar(api=served.api(), node=NODE, ledger_namespace=SYSTEM, clock=time, log=served.log())
    served.time.seconds = 7.0
    assert found.age_seconds == 7.0


def test_it_asks_for_each_thing_once_and_then_watches(served: Served) -> None:
    """What an API server has to do for a node: no polls."""
    with kept(served, slices=True) as found:
        before = found.last
        served.cluster.add_ledger(T4)
        eventually(lambda: found.last is not before)
        asked = [url for _, url in served.cluster.requests]
    assert sum("watch=1" in url for url in asked) == 5
    assert len(asked) == 5 + 5 + 1, "and the pods once more for a new ledger"
    assert all("fieldSelector=" in url for url in asked), "of nothing but what concerns the node"
