"""Tests the class Pod, with which all agents decode pods."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents.kube.fields import FieldError
from agents.kube.pods import Pod, waiting_seat
from tenancy.ledger import Ledger, QueueQuota, Seat
from tenancy.names import SCHEDULER_NAME
from tests.support.fake_cluster import DOMAIN, NAMES, T4
from tests.support.mirrors import mirror, owner


def item(*, status: Any = None, metadata: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "n", "name": "p", "uid": "u", "creationTimestamp": "2026-06-02T06:00:00Z"}
        | (metadata or {}),
        "spec": spec,
        "status": status,
    }


def pod(**fields: Any) -> Pod:
    return Pod(item(**fields))


def gpumem(amount: str, **fields: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": {NAMES.gpumem: amount}}, **fields}


@pytest.mark.parametrize(
    "containers", [[gpumem("much")], {"c": gpumem("1")}, [{"resources": []}]], ids=["quantity", "no list", "no map"]
)
def test_what_cannot_be_read_names_the_pod_and_the_field_whatever_is_wrong(containers: Any) -> None:
    broken = pod(containers=containers)
    with pytest.raises(FieldError, match=r"^pod n/p: viktorbarzin\.me/gpumem: "):
        broken.request(NAMES.gpumem)


def test_a_pod_terminates_from_its_deletion_on_and_not_by_a_null() -> None:
    going = pod(metadata={"deletionTimestamp": "2026-06-02T07:00:30Z"})
    assert (going.terminating, going.gone_by) == (True, datetime(2026, 6, 2, 7, 0, 30, tzinfo=UTC))
    staying = pod(metadata={"deletionTimestamp": None})
    assert (staying.terminating, staying.gone_by) == (False, None)


@pytest.mark.parametrize("shown", ["2272-07-16T07:00:00Z", "1779-11-01T07:00:00Z"])
@pytest.mark.parametrize("seconds", [100_000_000_000, 2**63 - 1])
def test_a_grace_period_beyond_what_the_api_server_can_add_up_begins_with_the_pod(shown: str, seconds: int) -> None:
    """The API server's calculation overflows for an extreme grace period."""
    metadata = {"deletionTimestamp": shown, "deletionGracePeriodSeconds": seconds}
    found = pod(metadata=metadata, terminationGracePeriodSeconds=seconds)
    assert found.gone_by is not None
    assert found.gone_by - timedelta(seconds=found.going_seconds) == found.created
    assert found.gone_by > datetime(2300, 1, 1, tzinfo=UTC)
    assert found.grace_seconds == found.going_seconds < 2**34


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, 30),
        ({"terminationGracePeriodSeconds": None}, 30),
        ({"terminationGracePeriodSeconds": 0}, 0),
        ({"terminationGracePeriodSeconds": 3600}, 3600),
        ({"terminationGracePeriodSeconds": -1}, 0),
    ],
)
def test_a_grace_period_is_the_pods_own(spec: dict[str, Any], seconds: int) -> None:
    assert pod(**spec).grace_seconds == seconds


def test_a_static_pod_has_the_uid_of_its_files_hash_in_its_control_group() -> None:
    mirrored = pod(nodeName="node", metadata=mirror("hash", "node"))
    assert (mirrored.uid, mirrored.group_uid, mirrored.static) == ("u", "hash", True)
    assert pod().group_uid == "u"


def test_a_pod_that_names_another_as_its_control_group_is_known_by_its_own() -> None:
    forged = mirror("uid-of-a-neighbour", "node")
    for part in ("annotations", "ownerReferences"):
        found = pod(nodeName="node", metadata={part: forged[part]})
        assert (found.group_uid, found.static) == ("u", False)
    hashed = {"annotations": {"kubernetes.io/config.hash": "uid-of-a-neighbour"}}
    assert pod(nodeName="node", metadata={**forged, **hashed}).group_uid == "u"


def test_a_mirror_is_of_the_node_that_runs_it() -> None:
    found = pod(nodeName="node", metadata=mirror("uid-of-a-neighbour", "another"))
    assert (found.group_uid, found.static) == ("u", False)
    named_so = mirror("uid-of-a-neighbour", "node") | {"ownerReferences": owner("ReplicaSet", "node")}
    assert not pod(nodeName="node", metadata=named_so).static
    assert not pod(metadata=mirror("uid-of-a-neighbour", "node")).static


SEATED = Ledger(domain=DOMAIN, pools=(T4,), seats=(Seat(name="s", tenant="n", pool=T4.name, gpumem_mib=3000),))


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({}, True),
        ({"schedulerName": "default-scheduler"}, False),
        ({"nodeName": "node-0"}, False),
        ({"schedulingGates": [{"name": "kueue"}]}, False),
        ({"schedulingGates": None, "nodeName": ""}, True),
        ({"containers": [gpumem("3001")]}, False),
        ({"containers": [{"name": "c"}]}, False),
        ({"metadata": {"deletionTimestamp": "2026-06-02T06:00:00Z"}}, False),
        ({"metadata": {"namespace": "other"}}, False),
        ({"status": {"phase": "Failed"}}, False),
    ],
)
def test_which_pod_is_a_waiting_seat(fields: dict[str, Any], waits: bool) -> None:
    spec: dict[str, Any] = {"schedulerName": SCHEDULER_NAME, "containers": [gpumem("3k")], **fields}
    found = waiting_seat(item(**spec), SEATED)
    assert (found is not None) == waits
    if found:
        assert (str(found), found.request.mib, found.pools) == ("n/p", 3000, frozenset({T4.name}))


NO_MEMORY_NOW = (
    "0/2 nodes are available: 1 its largest GPU has 500 MiB free, not 3000, as measured and less the floor; the seat "
    "is held back for at most 60 s for memory in use to be given back, 1 node(s) didn't match Pod's node selector."
)


@pytest.mark.parametrize(
    ("reason", "message", "waits"),
    [
        ("Unschedulable", NO_MEMORY_NOW, True),
        ("Unschedulable", "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.", False),
        ("Unschedulable", 'persistentvolumeclaim "models" not found', False),
        ("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.", False),
        ("SchedulerError", "running Bind plugin: the API was too slow", True),
        ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates", True),
        ("Unschedulable", None, False),
    ],
)
def test_a_pod_that_waits_for_something_else_than_memory_is_no_waiting_seat(
    reason: str, message: str | None, waits: bool
) -> None:
    """Before the fix, the agents recycled pods again and again for a pod that could not start."""
    told = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    spec: dict[str, Any] = {"schedulerName": SCHEDULER_NAME, "containers": [gpumem("3k")]}
    found = item(status={"conditions": [{"type": "Ready", "status": "False"}, told]}, **spec)
    assert (waiting_seat(found, SEATED) is not None) == waits


def test_who_has_a_seat_and_a_queue_waits_for_the_seat_where_that_is_enough() -> None:
    quota = QueueQuota(queue="q", flavor="f", pool=T4.name, resource=NAMES.gpumem, nominal=9000)
    ledger = replace(SEATED, quotas=(quota,), queue_tenants=("n",))
    asked = [item(schedulerName=SCHEDULER_NAME, containers=[gpumem(mib)]) for mib in ("3000", "3001")]
    found = [waiting_seat(each, ledger) for each in asked]
    assert [each.seats[0].name for each in found if each] == ["s", "p"]
