"""Tests the Event on a pod that the driver does not cap."""

from datetime import UTC, datetime

from agents.kube.events import Recorder
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.reading import ContainerCap
from agents.watchdog.report import Reporter
from tests.support.fake_cluster import NAMES, T4, Served

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def test_each_container_that_is_not_held_is_named_once_on_its_pod_with_the_reason(served: Served) -> None:
    recorder = Recorder(api=served.api(), controller="gpu-vram-watchdog", instance="w")
    reporter = Reporter(log=served.log(), recorder=recorder, resource=NAMES.gpumem, now=NOW)
    caps = tuple(
        ContainerCap(uid="u", namespace="chat", pod="chat-0", container=name, why_not=why)
        for name, why in (("a", "no-limit"), ("b", "no-limit"), ("c", ""), ("d", "no-cgroup"))
    )
    readings = [NodeTelemetry(pool=T4, node="n", caps=caps)]
    for _ in range(2):
        reporter.warn_of_caps(readings)
    events = served.cluster.events.values()
    assert [(found["reason"], found["regarding"]["name"], found["note"]) for found in events] == [
        (
            "GpuMemoryNotCapped",
            "chat-0",
            f"NVIDIA's driver on n is not shown to hold container {name} to its {NAMES.gpumem}: no-limit",
        )
        for name in ("a", "b")
    ]
