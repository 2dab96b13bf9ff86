"""Tests that the exporter keeps its last objects while the API server does not answer."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from agents.exporter.registry import Recycle, RegistryInformer
from agents.kube.slices import SLICES
from tests.support.fake_cluster import LABELS, NAMES, SYSTEM, T4, Served
from tests.support.informing import HurriedTime, running
from tests.support.node_pods import CHAT
from tests.support.waiting import eventually

NODE = "k8s-node1"
CONFIG_MAPS = f"/api/v1/namespaces/{SYSTEM}/configmaps"
JOURNAL_NAME = "gpu-vram-watchdog-journal"
SLICE = f"{NAMES.device_driver}-{NODE}"


def pod(name: str, version: str = "50", **changes: Any) -> dict[str, Any]:
    found = json.loads(json.dumps({"kind": "Pod", **CHAT, **changes}))
    found["metadata"] |= {"name": name, "uid": f"uid-{name}", "resourceVersion": version}
    return dict(found)


def informer(served: Served, time: HurriedTime | None = None, *, slices: bool = False) -> RegistryInformer:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    served.cluster.pods.append(pod("chat-0"))
    clock = (time or HurriedTime()).clock()
    api = served.api(clock=clock)
    return RegistryInformer(api=api, node=NODE, ledger_namespace=SYSTEM, clock=clock, log=served.log(), slices=slices)


@contextmanager
def kept(served: Served, *, slices: bool = False) -> Iterator[RegistryInformer]:
    found = informer(served, slices=slices)
    with running(found.informer, served.cluster, watches=5 if slices else 4):
        yield found


def declared(found: RegistryInformer) -> list[tuple[str, int]]:
    return [(each.name, each.declared_mib) for each in found.last.node_pods.pods]


def test_it_knows_the_pods_with_their_budgets_the_ledger_and_the_nodes_own_pool(served: Served) -> None:
    with kept(served) as found:
        assert declared(found) == [("chat-0", 5000)]
        assert found.last.ledger is not None
        assert found.last.ledger.names == NAMES
        assert found.last.node is not None
        assert (found.last.node.uid, found.last.pool) == (f"uid-{NODE}", T4)


def test_a_deleted_ledger_leaves_names_without_budgets_until_there_is_a_new_one(served: Served) -> None:
    with kept(served) as found:
        served.cluster.delete_ledger()
        eventually(lambda: declared(found) == [("chat-0", 0)])
        assert found.last.ledger is None
        served.cluster.add_ledger(T4)
        eventually(lambda: declared(found) == [("chat-0", 5000)])


def test_a_node_that_is_relabelled_is_of_another_pool(served: Served) -> None:
    with kept(served) as found:
        served.cluster.add_node(labels={"zone": "elsewhere"})
        eventually(lambda: found.last.pool is None)
        served.cluster.add_node(labels=LABELS)
        eventually(lambda: found.last.pool == T4)


def test_a_slice_comes_and_goes(served: Served) -> None:
    stored = {"kind": "ResourceSlice", "metadata": {"name": SLICE, "resourceVersion": "60"}, "spec": {}}
    served.cluster.objects[f"{SLICES}/{SLICE}"] = stored
    with kept(served, slices=True) as found:
        assert found.last.slices == {SLICE: stored}
        gone = {**stored, "metadata": {"name": SLICE, "resourceVersion": served.cluster.next_version()}}
        served.cluster.tell("DELETED", SLICES, gone)
        eventually(lambda: found.last.slices == {})


@pytest.mark.parametrize(
    ("text", "recycled"),
    [
        (
            '{"recycled":[{"at":"2026-06-02T12:00:00+00:00","workload":"a/b/c"}]}',
            (Recycle(datetime(2026, 6, 2, 12, tzinfo=UTC), "a/b/c"),),
        ),
        ("{}", ()),
        ("torn", None),
        ('{"recycled":[{"at":"yesterday","workload":"a/b/c"}]}', None),
    ],
)
def test_the_watchdogs_journal_is_followed(served: Served, text: str, recycled: tuple[Recycle, ...] | None) -> None:
    with kept(served) as found:
        assert found.last.recycled is None
        last = found.last
        metadata = {"name": JOURNAL_NAME, "resourceVersion": served.cluster.next_version()}
        journal = {"kind": "ConfigMap", "metadata": metadata, "data": {"journal.json": text}}
        served.cluster.tell("ADDED", CONFIG_MAPS, journal)
        eventually(lambda: found.last is not last)
        assert found.last.recycled == recycled


@pytest.mark.parametrize(("slices", "watches"), [(True, 5), (False, 4)])
def test_it_lists_and_watches_each_thing_once_and_nothing_of_other_nodes(
    served: Served, slices: bool, watches: int
) -> None:
    with kept(served, slices=slices) as found:
        before = found.last
        served.cluster.add_ledger(T4)
        eventually(lambda: found.last is not before)
        asked = [url for _, url in served.cluster.requests]
    assert sum("watch=1" in url for url in asked) == watches
    assert len(asked) == 2 * watches + 1, "the pods are listed once more for a new ledger"
    assert all("fieldSelector=" in url for url in asked)
    assert any(SLICES in url for url in asked) is slices
