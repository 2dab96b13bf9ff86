"""Tests that an agent writes the same Event only once."""

from dataclasses import replace
from datetime import UTC, datetime

from agents.kube.events import Event, EventWriter, Recorder, Reference
from tests.support.fake_cluster import Fault, Served

NOW = datetime(2026, 11, 20, 22, 0, 0, 5, tzinfo=UTC)
NODE = Reference(api_version="v1", kind="Node", name="n", uid="u")
POD = Reference(api_version="v1", kind="Pod", namespace="immich", name="p", uid="v")
REFUSAL = Event(regarding=NODE, reason="Refused", note="because", action="Reconcile", warning=True)


def recorder(served: Served) -> Recorder:
    return Recorder(api=served.api(), controller="gpumem-reconcile", instance="pod-1")


def test_the_same_refusal_is_reported_once(served: Served) -> None:
    recorder(served).record(REFUSAL, NOW)
    recorder(served).record(REFUSAL, NOW)
    (event,) = served.cluster.events.values()
    assert event["eventTime"] == "2026-11-20T22:00:00.000005Z"


def test_another_occasion_note_or_node_is_another_event(served: Served) -> None:
    for event in (
        REFUSAL,
        replace(REFUSAL, occasion="7"),
        replace(REFUSAL, note="why"),
        replace(REFUSAL, regarding=replace(NODE, uid="v")),
    ):
        recorder(served).record(event, NOW)
    assert len(served.cluster.events) == 4


def test_an_event_lives_where_its_object_lives_and_on_a_cluster_scoped_one_in_default(served: Served) -> None:
    recorder(served).record(REFUSAL, NOW)
    recorder(served).record(replace(REFUSAL, regarding=POD), NOW)
    (on_node, on_pod) = served.cluster.events.values()
    assert [url for _, url in served.cluster.requests] == [
        "/apis/events.k8s.io/v1/namespaces/default/events",
        "/apis/events.k8s.io/v1/namespaces/immich/events",
    ]
    assert (on_node["metadata"]["namespace"], on_pod["metadata"]["namespace"]) == ("default", "immich")
    assert on_node["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    assert on_pod["regarding"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "immich", "name": "p", "uid": "v"}


def test_a_note_is_cut_to_what_the_server_takes(served: Served) -> None:
    recorder(served).record(replace(REFUSAL, note="\u00e9" * 600), NOW)
    (event,) = served.cluster.events.values()
    assert event["note"] == "\u00e9" * 512


def writer(served: Served) -> EventWriter:
    recorder = Recorder(api=served.api(attempts=1), controller="gpu-tenancy-scheduler", instance="scheduler-0")
    return EventWriter(recorder=recorder, clock=served.time.clock(), log=served.log())


def test_an_event_that_cannot_be_written_is_logged_and_the_next_one_is_written(served: Served) -> None:
    events = writer(served)
    served.cluster.faults = [Fault("POST", "/apis/events.k8s.io", 403, "Forbidden", "no events")]
    for reason in ("Refused", "Again"):
        events.put(replace(REFUSAL, reason=reason))
        events.write_next()
    assert [event["reason"] for event in served.cluster.events.values()] == ["Again"]
    assert [line["message"].partition(":")[0] for line in served.lines()] == [
        "an Event is not written",
        "Events are written again",
    ]
