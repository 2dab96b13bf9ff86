"""Tests how the gate reads the start, the deletion and the devices of a pod."""

from typing import Any

import pytest

from agents.gate.pods import BoundPod, bound_pod, ended_pods
from agents.kube.pods import BOUND, PODS, waiting_seats
from agents.runtime.items import ItemProblems
from tenancy import names
from tenancy.ledger import Ledger, Seat
from tests.support.fake_cluster import DOMAIN, NAMES, T4, Served
from tests.support.gating import NOW, reading, seat_pod, used

SEAT = Seat(name="chat", tenant="chat", pool="t4", gpumem_mib=3000)
LEDGER = Ledger(domain=DOMAIN, pools=(T4,), seats=(SEAT,))
BEGAN = 1_795_143_600  # 2026-11-20T03:00:00Z


def add_pod(served: Served, *, node: str = "n", status: dict[str, Any] | None = None, **metadata: Any) -> None:
    served.cluster.add_pod("p", node, "3000")
    pod = served.cluster.pods[-1]
    pod["metadata"] |= {"namespace": "chat", "creationTimestamp": "2026-11-20T03:00:00Z", **metadata}
    pod["status"] |= status or {}
    pod["spec"]["schedulerName"] = names.SCHEDULER_NAME


def one(served: Served) -> BoundPod:
    (item,) = served.api().items(PODS, **BOUND)
    found = bound_pod(item, LEDGER, ItemProblems(log=served.log()))
    assert found is not None
    return found


def running(*starts: str | None) -> dict[str, Any]:
    states = [{"running": {"startedAt": at}} if at else {"waiting": {"reason": "CrashLoopBackOff"}} for at in starts]
    return {"containerStatuses": [{"name": f"c{n}", "state": state} for n, state in enumerate(states)]}


ENDED = {"name": "once", "state": {"terminated": {"exitCode": 0}}}


def test_a_bound_pod_has_its_budget_and_its_devices(served: Served) -> None:
    add_pod(served, annotations={NAMES.device_uuid: "GPU-0,GPU-1"})
    found = one(served)
    assert (found.uid, found.namespace, found.node, found.declared_mib) == ("uid-p", "chat", "n", 3000)
    assert (found.uuids, found.running_since, found.going_since) == (("GPU-0", "GPU-1"), None, None)


@pytest.mark.parametrize(
    ("status", "since"),
    [
        ({}, None),
        ({"startTime": "2026-11-20T03:00:00Z"}, BEGAN),
        ({"startTime": "2026-11-20T03:00:00Z", "phase": "Pending"}, None),
        (running("2026-11-20T03:00:00Z"), BEGAN),
        (running("2026-11-20T03:00:00Z", "2026-11-20T03:00:09Z"), BEGAN + 9),
        (running("2026-11-20T03:00:00Z", None), None),
        ({"containerStatuses": [ENDED, *running("2026-11-20T03:00:00Z")["containerStatuses"]]}, BEGAN),
        ({"containerStatuses": [ENDED]}, None),
    ],
)
def test_it_runs_since_the_last_of_its_containers_started(
    served: Served, status: dict[str, Any], since: int | None
) -> None:
    add_pod(served, status=status)
    assert one(served).running_since == since


def test_it_goes_since_its_deletion_began_and_not_since_its_grace_is_over(served: Served) -> None:
    add_pod(served, deletionTimestamp="2026-11-20T03:01:00Z", deletionGracePeriodSeconds=60)
    assert (one(served).going_since, one(served).grace_seconds) == (BEGAN, 60)


def test_a_pod_that_is_not_bound_waits_for_its_seat(served: Served) -> None:
    add_pod(served, node="")
    (item,), problems = served.cluster.pods, ItemProblems(log=served.log())
    assert bound_pod(item, LEDGER, problems) is None
    assert [str(seat) for seat in waiting_seats(served.api(), LEDGER, problems)] == ["chat/p"]


def test_an_ended_pod_goes_since_the_first_sample_that_shows_its_use_after_its_end() -> None:
    readings = [used(reading(9000), there=10, gone=10)]
    first = [*ended_pods([seat_pod("there", 10)], readings, [], NOW)]
    assert [(pod.uid, pod.going_since) for pod in first] == [("gone", NOW)]
    assert [pod.going_since for pod in ended_pods([seat_pod("there", 10)], readings, first, NOW + 5)] == [NOW]
