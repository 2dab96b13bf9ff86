"""Tests what a rollout says about the objects for which it waits."""

from collections.abc import Iterator
from typing import Any

from agents.kube.errors import ApiError
from stacks.preview.events import Op, Resource
from stacks.waits import PATIENCE_SECONDS, Waits
from tests.support.cluster_objects import Object, Objects

ALL, EVENTS = "/api/v1/events", "/api/v1/namespaces/gpu/events"
JOB = {"metadata": {"name": "reconcile-1", "namespace": "gpu"}}
GOES_ON = "    It goes on when this passes. Repair it meanwhile, or end with Ctrl-C."


def event(reason: str, message: str, *, of: str = "reconcile-1-x", kind: str = "Pod", version: str = "2") -> Object:
    about = {"kind": kind, "name": of, "uid": f"uid-{of}"}
    return {"metadata": {"resourceVersion": version}, "reason": reason, "message": message, "involvedObject": about}


def awaited(kind: str = "batch/v1:Job", inputs: Object = JOB) -> Resource:
    return Resource(urn=f"urn:pulumi:lab::gpu-tenancy::kubernetes:{kind}::any", parent="", op=Op.CREATE, inputs=inputs)


def said(*events: Object, known: tuple[Object, ...] = (), seconds: float = PATIENCE_SECONDS, **of: Any) -> list[str]:
    waits = Waits(Objects({ALL: [*known], EVENTS: [*known, *events]}))
    return [*waits.lines([(awaited(**of), seconds)])]


def test_a_pod_that_cannot_start_is_named_with_its_own_reason() -> None:
    assert said(event("FailedScheduling", "0/3 nodes are available: 3 Insufficient cpu.\n")) == [
        "  waits for Job gpu/reconcile-1; the cluster says of Pod gpu/reconcile-1-x: FailedScheduling: "
        "0/3 nodes are available: 3 Insufficient cpu.",
        GOES_ON,
    ]


def test_a_job_that_gets_no_pod_and_a_chart_are_named_with_their_reasons() -> None:
    (line, _) = said(event("FailedCreate", "exceeded quota: none", of="reconcile-1", kind="Job"))
    assert line.endswith("the cluster says of Job gpu/reconcile-1: FailedCreate: exceeded quota: none")
    manager = event("Failed", "no such image", of="kueue-controller-manager-7d-x")
    (line, _) = said(manager, kind="helm.sh/v3:Release", inputs={"name": "kueue", "namespace": "gpu"})
    assert line.startswith("  waits for Release gpu/kueue; the cluster says of Pod gpu/kueue-controller-manager-7d-x: ")


def test_events_of_others_and_from_before_the_rollout_and_of_the_first_seconds_say_nothing() -> None:
    failed = event("Failed", "no such image")
    assert said(event("Failed", "", of="reconcile-12"), event("Failed", "", of="gate-1")) == []
    assert said(event("ClusterIPNotAllocated", "repairing", of="reconcile-1-metrics", kind="Service")) == []
    assert said(known=(failed,)) == []
    assert said(failed, seconds=PATIENCE_SECONDS - 1) == []
    assert said(failed, inputs={"metadata": {"name": "reconcile-1"}}) == []


def test_a_reason_is_told_once_and_each_minute_what_is_still_waited_for() -> None:
    waits = Waits(Objects({EVENTS: [event("Failed", "no such image"), event("Failed", "ErrImagePull")]}))
    lines = [line for seconds in range(125) for line in waits.lines([(awaited(), float(seconds))])]
    reason, goes_on, *minutes = lines
    assert reason.endswith("no such image")
    assert (goes_on, minutes) == (
        GOES_ON,
        ["  waits for Job gpu/reconcile-1, since 1 min", "  waits for Job gpu/reconcile-1, since 2 min"],
    )


def test_an_api_server_that_does_not_answer_is_asked_again() -> None:
    class Silent(Objects):
        def items(self, path: str, **parameters: str) -> Iterator[Object]:
            if path == EVENTS:
                raise ApiError("GET events", None, "NoAnswer", "refused")
            return super().items(path, **parameters)

    assert [*Waits(Silent()).lines([(awaited(), 20.0)])] == []
