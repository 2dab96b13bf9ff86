"""Tests the Event on a pod that the driver does not cap."""

from datetime import UTC, datetime

from agents.kube.events import Recorder, Reference
from agents.watchdog.report import Reporter
from agents.watchdog.types import Decision, PassState, UncappedPod
from tests.support.fake_cluster import NAMES, Served

POD = Reference(api_version="v1", kind="Pod", namespace="chat", name="chat-0", uid="u")
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def test_each_container_that_is_not_held_is_named_once_on_its_pod_with_the_reason(served: Served) -> None:
    recorder = Recorder(api=served.api(), controller="gpu-vram-watchdog", instance="w")
    reporter = Reporter(log=served.log(), recorder=recorder, resource=NAMES.gpumem, now=NOW)
    uncapped = tuple(UncappedPod(pod=POD, node="n", container=name, why="no-limit") for name in ("a", "b"))
    for _ in range(2):
        reporter.warn(Decision(state=PassState(), uncapped=uncapped), {})
    events = served.cluster.events.values()
    assert [(found["reason"], found["regarding"]["name"], found["note"]) for found in events] == [
        (
            "GpuMemoryNotCapped",
            "chat-0",
            f"NVIDIA's driver on n is not shown to hold container {name} to its {NAMES.gpumem}: no-limit",
        )
        for name in ("a", "b")
    ]
