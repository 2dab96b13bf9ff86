"""Tests reconcile with a fake cluster: the nodes, the Events and the exit status."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.kube.ledger import LedgerError
from agents.reconcile.main import ROLLOUT_SECONDS
from tenancy.names import EVENT_ADVERTISED, EVENT_REFUSED, LABEL_GPU_MEMORY, RECONCILE
from tests.support.fake_cluster import LABELS, NAMES, T4, FakeCluster, Fault, Served
from tests.support.reconciling import FULL, NOTHING, reconciler

MINUTE = datetime(2026, 11, 21, 4, 30, tzinfo=UTC)


@pytest.fixture
def fresh(served: Served) -> FakeCluster:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    return served.cluster


@pytest.fixture
def retired(served: Served) -> FakeCluster:
    served.cluster.add_ledger(T4)
    served.cluster.delete_ledger()
    served.cluster.add_node(gpumem="14k", gpu_count="14k")
    return served.cluster


def patches(cluster: FakeCluster) -> list[str]:
    return [url for method, url in cluster.requests if method == "PATCH"]


def logged(served: Served, level: str) -> list[str]:
    return [line["message"] for line in served.lines() if line["level"] == level]


def test_a_node_of_the_pool_is_advertised_read_back_and_has_an_event(served: Served, fresh: FakeCluster) -> None:
    assert reconciler(served).run() == 0
    assert fresh.shown() == FULL
    assert patches(fresh) == ["/api/v1/nodes/k8s-node1/status"]
    assert [url for method, url in fresh.requests if url.startswith("/api/v1/nodes?")][1:] != []
    (event,) = fresh.events.values()
    assert (event["reason"], event["type"], event["metadata"]["namespace"]) == (EVENT_ADVERTISED, "Normal", "default")
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "k8s-node1", "uid": "uid-k8s-node1"}
    assert (event["reportingController"], event["reportingInstance"]) == (RECONCILE, "one")


def test_a_ledger_that_nothing_would_retire_is_not_advertised(served: Served, fresh: FakeCluster) -> None:
    fresh.objects[fresh.ledger_path]["metadata"]["finalizers"] = ["example.com/other"]
    assert reconciler(served).run() == 0
    assert (fresh.shown(), patches(fresh)) == (NOTHING, [])


def test_a_write_that_does_not_last_is_reported(served: Served, fresh: FakeCluster) -> None:
    fresh.ignores_patches = True
    assert reconciler(served, run_seconds=50).run() == 0
    assert "k8s-node1: still differs after 4 writes" in logged(served, "error")[-1]


def test_a_rollout_whose_writes_do_not_last_ends_and_names_the_node(served: Served, fresh: FakeCluster) -> None:
    """Before the fix, the run continued until the Job's deadline, without a report."""
    fresh.ignores_patches = True
    assert reconciler(served).run() == 1
    assert "k8s-node1: still differs after 4 writes" in logged(served, "error")[-1]
    assert sum(served.time.slept) <= ROLLOUT_SECONDS


@pytest.mark.parametrize("run_seconds", [0, 50])
def test_a_patch_that_one_node_refuses_keeps_no_other_from_being_advertised(served: Served, run_seconds: int) -> None:
    served.cluster.add_ledger(replace(T4, nodes=3))
    for name in ("a", "b", "c"):
        served.cluster.add_node(name)
    served.cluster.faults = [Fault("PATCH", "/api/v1/nodes/b/", 422, "Invalid", "denied by a policy", times=999)]
    assert reconciler(served, run_seconds=run_seconds).run() == 0
    assert [served.cluster.shown(name) for name in ("a", "b", "c")] == [FULL, NOTHING, FULL]
    assert "b: PATCH /api/v1/nodes/b/status: 422 Invalid: denied by a policy" in logged(served, "error")[-1]


def test_a_node_without_labels_does_not_hold_a_rollout_whose_pool_has_another(
    served: Served, fresh: FakeCluster
) -> None:
    fresh.add_node("bare", labels={"gpu": "t4"})
    assert reconciler(served).run() == 0
    assert (fresh.shown("bare"), fresh.shown(), served.time.slept) == (NOTHING, FULL, [])
    words = "bare: the label nvidia.com/gpu.memory and nvidia.com/gpu.count is missing"
    assert words in logged(served, "error")[-1]


def test_a_run_that_starts_late_in_its_minute_ends_by_itself(served: Served, fresh: FakeCluster) -> None:
    served.time.seconds = 12
    agent = reconciler(
        served,
        run_seconds=45,
        pod_name=f"gpumem-reconcile-{int(MINUTE.timestamp()) // 60}-x7k2p",
        now=lambda: MINUTE + timedelta(seconds=served.time.seconds),
    )
    assert agent.run() == 0
    assert served.time.slept == [10.0] * 3


def test_a_pass_that_the_server_failed_is_repeated(served: Served, fresh: FakeCluster) -> None:
    fresh.faults = [Fault("GET", "/api/v1/nodes", 503, times=4)]
    assert reconciler(served, run_seconds=50).run() == 0
    assert fresh.shown() == FULL


def test_the_job_waits_for_the_labels_of_a_new_node(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node(labels={"gpu": "t4"})

    def discover() -> None:
        if served.time.seconds >= 60:
            served.cluster.nodes["k8s-node1"]["metadata"]["labels"] = dict(LABELS)

    served.time.meanwhile = discover
    assert reconciler(served).run() == 0
    assert (served.time.seconds, served.cluster.shown()) == (60, FULL)


def test_the_job_fails_at_once_when_a_pool_has_no_node(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node(labels={"gpu": "l4"})
    assert reconciler(served).run() == 1
    assert served.lines()[-1]["message"] == "not up to date: pool t4: no node matches its node_selector"
    assert served.time.slept == []


def test_devices_smaller_than_declared_are_refused_with_one_event(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node(labels={**LABELS, LABEL_GPU_MEMORY: "8192"})
    assert reconciler(served, run_seconds=50).run() == 0
    assert served.cluster.shown() == NOTHING
    (event,) = served.cluster.events.values()
    assert (event["reason"], event["type"]) == (EVENT_REFUSED, "Warning")
    assert "nvidia.com/gpu.memory shows 8192, 15360 declared" in event["note"]


def test_a_retired_ledger_is_deleted_after_every_node_lost_its_capacity(served: Served, retired: FakeCluster) -> None:
    retired.add_node("other", labels={}, gpumem="7k", gpu_count="7k")
    assert reconciler(served, run_seconds=50).run() == 0
    assert (retired.shown(), retired.shown("other")) == (NOTHING, NOTHING)
    assert retired.ledger_path not in retired.objects
    assert patches(retired)[-1] == retired.ledger_path


def keep_capacity(cluster: FakeCluster) -> None:
    cluster.ignores_patches = True


def add_finalizer(cluster: FakeCluster) -> None:
    cluster.objects[cluster.ledger_path]["metadata"]["finalizers"].append("example.com/theirs")


@pytest.mark.parametrize(
    ("change", "left"), [(add_finalizer, "example.com/theirs"), (keep_capacity, NAMES.capacity_finalizer)]
)
def test_finalizers_of_others_stay_and_ours_while_a_node_keeps_its_capacity(
    served: Served, retired: FakeCluster, change: Callable[[FakeCluster], None], left: str
) -> None:
    change(retired)
    assert reconciler(served, run_seconds=50).run() == 0
    assert retired.objects[retired.ledger_path]["metadata"]["finalizers"] == [left]


def test_a_broken_ledger_cannot_hold_up_its_own_deletion(served: Served, retired: FakeCluster) -> None:
    retired.add_ledger(text="{")
    retired.delete_ledger()
    assert reconciler(served).run() == 0
    assert retired.shown() == NOTHING
    assert retired.ledger_path not in retired.objects


def test_a_broken_ledger_ends_the_run_and_leaves_the_nodes_alone(served: Served, fresh: FakeCluster) -> None:
    fresh.add_ledger(text="{")
    with pytest.raises(LedgerError, match="is not JSON"):
        reconciler(served).run()
    assert patches(fresh) == []
