"""Tests nodes without labels: reconcile keeps their capacity for some minutes.

A node never advertises less gpumem than its bound pods request.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.kube.nodes import Node
from agents.reconcile.decide import Action, BoundRequests, ClusterState, NodeFinding, decide
from agents.reconcile.labels import HOLD_SECONDS, VerifiedEvidence, remember_verified
from tenancy.choices import Sharing
from tenancy.ledger import Ledger, Pool
from tenancy.names import (
    EVENT_LABELS_GONE,
    JOURNAL_KEY,
    LABEL_GPU_COUNT,
    LABEL_GPU_MEMORY,
    RECONCILE,
    journal,
)
from tests.support.fake_cluster import LABELS, NAMES, SYSTEM, T4, Served
from tests.support.reconciling import FULL, NOTHING, reconciler, written

JOURNAL = f"/api/v1/namespaces/{SYSTEM}/configmaps/{journal(RECONCILE)}"
START = datetime(2026, 11, 21, 4, 30, tzinfo=UTC)
NOW = int(START.timestamp())
WHOLE = Pool(name="batch", node_selector={"gpu": "batch"}, nodes=1, device_count=1, sharing=Sharing.WHOLE)
LEDGER = Ledger(domain=NAMES.domain, pools=(T4, WHOLE))
SEEN = {"n": VerifiedEvidence(labels=LABELS)}
GONE = {"n": VerifiedEvidence(labels=LABELS, missing_since=NOW)}


def node(labels: Mapping[str, str], gpumem: str | None = "14k", gpu_count: str | None = "14k") -> Node:
    held = {key: amount for key, amount in ((NAMES.gpumem, gpumem), (NAMES.gpu_count, gpu_count)) if amount}
    return Node(name="n", labels=labels, capacity=held, allocatable=held)


def judged(
    found: Node,
    known: Mapping[str, VerifiedEvidence],
    *,
    after: int = 0,
    bound: BoundRequests | None = None,
    ledger: Ledger = LEDGER,
) -> tuple[Action, ...]:
    state = ClusterState(nodes=(found,), bound={"n": bound or BoundRequests()}, verified=known, now=NOW + after)
    return decide(ledger, state)


FLAPS = {
    "every label is gone": {},
    "the pool's label is gone": {key: value for key, value in LABELS.items() if key != "gpu"},
    "the pool's label shows something else": {**LABELS, "gpu": "batch"},
    "the devices' memory is gone": {"gpu": "t4", LABEL_GPU_COUNT: "1"},
    "the devices' number is gone": {"gpu": "t4", LABEL_GPU_MEMORY: "15360"},
}


@pytest.mark.parametrize("labels", FLAPS.values(), ids=FLAPS)
@pytest.mark.parametrize("known", [SEEN, GONE], ids=["at first sight", "later"])
def test_a_label_that_flaps_takes_nothing_off(labels: Mapping[str, str], known: Mapping[str, VerifiedEvidence]) -> None:
    actions = judged(node(labels), known, after=HOLD_SECONDS - 1, bound=BoundRequests(mib=13300))
    assert written(actions) == []
    (finding,) = actions
    assert isinstance(finding, NodeFinding)
    assert (finding.reason, finding.blocking) == (EVENT_LABELS_GONE, False)


@pytest.mark.parametrize("labels", FLAPS.values(), ids=FLAPS)
def test_after_minutes_what_is_bound_stays_and_nothing_new_is_taken(labels: Mapping[str, str]) -> None:
    assert written(judged(node(labels), GONE, after=HOLD_SECONDS, bound=BoundRequests(mib=13300))) == [13300]
    assert written(judged(node(labels), GONE, after=HOLD_SECONDS)) == [None]


def test_a_withdrawn_pool_is_taken_off_at_once_whatever_its_nodes_showed() -> None:
    for ledger in (replace(LEDGER, pools=(WHOLE,)), replace(LEDGER, pools=(replace(T4, node_selector={"gpu": "l4"}),))):
        for labels in (LABELS, {}):
            bound = BoundRequests(mib=3000)
            assert written(judged(node(labels), SEEN, bound=bound, ledger=ledger)) == [None]


def test_a_node_that_moves_to_another_memory_pool_is_that_ones_at_once() -> None:
    two = Pool(name="two", node_selector={"gpu": "two"}, nodes=1, device_count=2, memory_mib=24576, reserve_mib=576)
    moved = node({"gpu": "two", LABEL_GPU_MEMORY: "24576", LABEL_GPU_COUNT: "2"})
    assert written(judged(moved, SEEN, ledger=replace(LEDGER, pools=(T4, two)))) == [48000]


def test_a_device_that_is_shown_to_be_lost_takes_nothing_new_at_once() -> None:
    two = replace(T4, device_count=2)
    known = {"n": VerifiedEvidence(labels={**LABELS, LABEL_GPU_COUNT: "2"})}
    bound = BoundRequests(mib=13300)
    found = judged(node(LABELS, "28k", "28k"), known, bound=bound, ledger=replace(LEDGER, pools=(two,)))
    assert written(found) == [13300]


def test_the_wait_begins_when_a_label_is_first_missed_and_ends_when_it_is_back() -> None:
    first = remember_verified(LEDGER, (node(LABELS),), {}, NOW)
    assert first == SEEN
    assert remember_verified(LEDGER, (node({}),), first, NOW) == GONE
    assert remember_verified(LEDGER, (node({}),), GONE, NOW + 300) == GONE
    assert remember_verified(LEDGER, (node(LABELS),), GONE, NOW + 300) == SEEN


def run(served: Served, *, seconds: float, ahead_seconds: float = 0) -> int:
    served.time.seconds = seconds
    served.cluster.now = START + timedelta(seconds=seconds)
    local = START + timedelta(seconds=seconds + ahead_seconds)
    return reconciler(served, run_seconds=20, now=lambda: local).run()


@pytest.fixture
def kept(served: Served) -> Served:
    metadata = {"name": journal(RECONCILE), "resourceVersion": served.cluster.next_version()}
    served.cluster.objects[JOURNAL] = {"metadata": metadata}
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    served.cluster.add_pod("chat", "k8s-node1", "13300")
    assert run(served, seconds=0) == 0
    served.cluster.add_node(labels={}, gpumem="14k", gpu_count="14k")
    return served


def test_the_wait_goes_on_across_runs(kept: Served) -> None:
    assert run(kept, seconds=60) == 0
    assert run(kept, seconds=600) == 0
    assert kept.cluster.shown() == FULL
    assert run(kept, seconds=60 + HOLD_SECONDS) == 0
    assert kept.cluster.shown()[0] == "13300"
    kept.cluster.remove_pod("chat")
    assert run(kept, seconds=120 + HOLD_SECONDS) == 0
    assert kept.cluster.shown() == NOTHING
    assert json.loads(kept.cluster.objects[JOURNAL]["data"][JOURNAL_KEY]) == {}


def test_a_destroy_waits_for_no_label(kept: Served) -> None:
    kept.cluster.delete_ledger()
    assert run(kept, seconds=60) == 0
    assert kept.cluster.shown() == NOTHING
    assert kept.cluster.ledger_path not in kept.cluster.objects


@pytest.mark.parametrize("text", ["{", "[]", '{"n": 3}'])
def test_a_journal_that_cannot_be_read_keeps_no_node_from_being_advertised(kept: Served, text: str) -> None:
    kept.cluster.objects[JOURNAL]["data"] = {JOURNAL_KEY: text}
    kept.cluster.add_node()
    assert run(kept, seconds=60) == 0
    assert kept.cluster.shown() == FULL
    assert any(line["level"] == "error" and "to start over" in line["message"] for line in kept.lines())
