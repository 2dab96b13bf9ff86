"""Tests how the watchdog reads a pod's budget, workload and termination."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from agents.kube.pods import Controller
from agents.runtime.items import ItemProblems
from agents.watchdog.pods import GpuPod, read_pods
from tenancy.ledger import Ledger
from tenancy.names import KUEUE_POD_SET_LABEL, KUEUE_WORKLOAD_ANNOTATION
from tests.support.fake_cluster import DOMAIN, NAMES, T4, Served
from tests.support.mirrors import owner

LEDGER = Ledger(domain=DOMAIN, pools=(T4,))
QUEUED = replace(LEDGER, queue_tenants=("llama-swap",))


def read(
    served: Served,
    ledger: Ledger = LEDGER,
    *,
    status: dict[str, Any] | None = None,
    gpumem: str = "5k",
    **metadata: Any,
) -> GpuPod:
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
    (found,) = read_pods(served.api(), "n", ledger, ItemProblems(log=served.log()))
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
        owner=Controller(kind="ReplicaSet", name="llama-swap-5c9d", uid="owner-1", api_version="v1"),
    )


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
    assert read(served, QUEUED, **metadata).workload == workload


def test_the_devices_that_it_was_placed_on(served: Served) -> None:
    assert read(served).uuids == ()
    assert read(served, annotations={NAMES.device_uuid: "GPU-1,GPU-2"}).uuids == ("GPU-1", "GPU-2")


@pytest.mark.parametrize(
    ("named", "queued_as", "workload"),
    [
        *((bad, "", "Pod/llama-swap-5c9d-x") for bad in ("x" * 250_000, "x" * 254, "../../pods/x", "Job", "job\n", "")),
        *((bad, "", "Pod/llama-swap-5c9d-x") for bad in ("job-a?dryRun=All", "jöb", "a..b", "a.-b", "job/a", "job a")),
        *((good, good, f"Workload/{good}") for good in ("job-train", "a", "x" * 253, "jobset.train-0")),
    ],
)
def test_a_workload_is_known_by_a_valid_name_alone(served: Served, named: str, queued_as: str, workload: str) -> None:
    """Before the fix, two long workload names filled the watchdog's journal."""
    labels, annotations = {KUEUE_POD_SET_LABEL: "main"}, {KUEUE_WORKLOAD_ANNOTATION: named}
    found = read(served, QUEUED, labels=labels, annotations=annotations)
    assert (found.queued_as, found.workload) == (queued_as, f"llama-swap/{workload}")


def test_only_a_queue_tenants_pod_belongs_to_a_workload_of_kueue(served: Served) -> None:
    """Before the fix, the watchdog could not read the Workload (status 403), and never evicted such a pod."""
    forged = {"labels": {KUEUE_POD_SET_LABEL: "main"}, "annotations": {KUEUE_WORKLOAD_ANNOTATION: "job-a"}}
    found = read(served, **forged)
    assert (found.queued_as, found.workload) == ("", "llama-swap/Pod/llama-swap-5c9d-x")
    assert read(served, QUEUED, **forged).queued_as == "job-a"
