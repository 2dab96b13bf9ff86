"""Pods as the watchdog reads them: what they declared, what they are one of, and how far gone they are."""

from datetime import UTC, datetime
from typing import Any

import pytest

from agents.kube.pods import Controller
from agents.watchdog.pods import GpuPod, read_pods
from tenancy.ledger import Ledger
from tests.support.fake_cluster import DOMAIN, NAMES, T4, Served
from tests.support.mirrors import mirror, owner

LEDGER = Ledger(domain=DOMAIN, pools=(T4,))


def read(served: Served, *, status: dict[str, Any] | None = None, gpumem: str = "5k", **metadata: Any) -> GpuPod:
    limits = {NAMES.gpumem: gpumem}
    served.cluster.pods = [
        {
            "metadata": {
                "name": "llama-swap-5c9d-x",
                "namespace": "llama-swap",
                "uid": "uid-1",
                "creationTimestamp": "2026-06-02T06:00:00Z",
                **metadata,
            },
            "spec": {"nodeName": "n", "priority": 1200000, "containers": [{"resources": {"limits": limits}}]},
            "status": {"phase": "Running"} if status is None else status,
        }
    ]
    (found,) = read_pods(served.api(), "n", LEDGER, served.log())
    return found


def test_a_pod_is_read_with_what_it_declared_in_whichever_spelling(served: Served) -> None:
    assert read(served, ownerReferences=owner("ReplicaSet", "llama-swap-5c9d")) == GpuPod(
        namespace="llama-swap",
        name="llama-swap-5c9d-x",
        uid="uid-1",
        node="n",
        declared_mib=5000,
        started=datetime(2026, 6, 2, 6, 0, tzinfo=UTC),
        workload="llama-swap/ReplicaSet/llama-swap-5c9d",
        priority=1200000,
        owner=Controller(kind="ReplicaSet", name="llama-swap-5c9d", uid="owner-1"),
    )


def test_a_static_pod_is_known_by_its_mirror_and_its_owner_together(served: Served) -> None:
    static = mirror("h", "n")
    assert read(served, **static).static
    assert not read(served, **static | {"annotations": {"kubernetes.io/config.hash": "h"}}).static
    assert not read(served, **static | {"annotations": {}}).static
    assert not read(served, **static | {"ownerReferences": []}).static


def test_only_the_pods_of_the_node_are_read(served: Served) -> None:
    read(served)
    assert list(read_pods(served.api(), "m", LEDGER, served.log())) == []


@pytest.mark.parametrize(
    ("metadata", "workload"),
    [
        ({}, "llama-swap/Pod/llama-swap-5c9d-x"),
        ({"ownerReferences": owner("StatefulSet", "db")}, "llama-swap/StatefulSet/db"),
        ({"ownerReferences": owner("Thing", "t", controller=False)}, "llama-swap/Pod/llama-swap-5c9d-x"),
        (
            {"ownerReferences": owner("ReplicaSet", "app-5c9d"), "labels": {"pod-template-hash": "5c9d"}},
            "llama-swap/Deployment/app",
        ),
        (
            {"ownerReferences": owner("ReplicaSet", "app-5c9d"), "labels": {"pod-template-hash": "other"}},
            "llama-swap/ReplicaSet/app-5c9d",
        ),
        (
            {
                "ownerReferences": owner("Job", "train"),
                "labels": {"kueue.x-k8s.io/podset": "main"},
                "annotations": {"kueue.x-k8s.io/workload": "job-train-1"},
            },
            "llama-swap/Workload/job-train-1",
        ),
        (
            {"ownerReferences": owner("Job", "train"), "labels": {"kueue.x-k8s.io/podset": "main"}},
            "llama-swap/Job/train",
        ),
    ],
)
def test_a_pod_is_one_of(served: Served, metadata: dict[str, Any], workload: str) -> None:
    assert read(served, **metadata).workload == workload


def test_a_pod_that_terminates_is_gone_when_its_grace_ends(served: Served) -> None:
    gone_by = read(served, deletionTimestamp="2026-06-02T07:00:30Z").gone_by
    assert gone_by == datetime(2026, 6, 2, 7, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("phase", "ended"), [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True)]
)
def test_a_pod_has_ended(served: Served, phase: str, ended: bool) -> None:
    assert read(served, status={"phase": phase}).ended is ended


def test_its_age_is_counted_from_its_start_on_the_node(served: Served) -> None:
    started = read(served, status={"phase": "Running", "startTime": "2026-06-02T06:30:00Z"}).started
    assert started == datetime(2026, 6, 2, 6, 30, tzinfo=UTC)


def test_a_request_that_cannot_be_read_is_named_and_its_pod_left_alone(served: Served) -> None:
    assert read(served, gpumem="much").declared_mib == 0
    (line,) = served.lines()
    assert "llama-swap-5c9d-x" in line["message"]
    assert "gpumem: 'much' is not a quantity" in line["message"]


@pytest.mark.parametrize(("spec", "seconds"), [({}, 30), ({"terminationGracePeriodSeconds": 0}, 0)])
def test_the_grace_that_it_asks_for(served: Served, spec: dict[str, Any], seconds: int) -> None:
    read(served)
    served.cluster.pods[0]["spec"] |= spec
    (found,) = read_pods(served.api(), "n", LEDGER, served.log())
    assert found.grace_seconds == seconds


def test_the_devices_that_it_was_placed_on(served: Served) -> None:
    assert read(served).uuids == ()
    assert read(served, annotations={NAMES.device_uuid: "GPU-1,GPU-2"}).uuids == ("GPU-1", "GPU-2")
