"""Watches against a server over real TLS and chunked answers."""

import threading
import time

import pytest

from agents import watch
from agents.api import Api, ApiError
from agents.clock import Clock
from agents.watch import Watch
from tests.agents.cluster import Fault, Served, status

NODES = "/api/v1/nodes"


def watched(served: Served, *, resource_version: str = "100", seconds: float = 20, **parameters: str) -> Watch:
    served.cluster.watches_last = True
    api = served.opened(Api(served.endpoint(), clock=Clock()))
    return Watch(api, NODES, clock=Clock(), resource_version=resource_version, seconds=seconds, **parameters)


def test_what_happens_after_the_list_is_told_in_order(served: Served) -> None:
    served.cluster.add_node("before")
    with watched(served, resource_version=str(served.cluster.version)) as events:
        served.cluster.add_node("after")
        served.cluster.add_node("after")
        told = [next(events), next(events)]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in told] == [
        ("ADDED", "after"),
        ("MODIFIED", "after"),
    ]


def test_the_request_bears_version_bookmarks_limit_and_selector(served: Served) -> None:
    with watched(served, seconds=7.2, fieldSelector="spec.nodeName!="):
        pass
    assert served.cluster.requests == [
        (
            "GET",
            f"{NODES}?watch=1&allowWatchBookmarks=true&resourceVersion=100&timeoutSeconds=8"
            "&fieldSelector=spec.nodeName%21%3D",
        )
    ]


def test_an_event_larger_than_a_read_is_whole(served: Served) -> None:
    label = "x" * 200_000
    with watched(served) as events:
        served.cluster.add_node("n", labels={"long": label})
        assert next(events)["object"]["metadata"]["labels"] == {"long": label}


def test_an_event_beyond_the_bound_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVENT_BYTES", 100_000)
    with watched(served) as events:
        served.cluster.add_node("n", labels={"long": "x" * 400_000})
        with pytest.raises(ApiError, match="WATCH /api/v1/nodes: TooLarge: an event is over 100000 bytes"):
            next(events)


def test_requests_go_on_beside_a_watch(served: Served) -> None:
    served.cluster.objects["/x"] = {}
    api = served.opened(Api(served.endpoint(), clock=Clock()))
    served.cluster.watches_last = True
    with Watch(api, NODES, clock=Clock(), resource_version="1", seconds=20):
        assert api.get("/x") == {}


def test_a_watch_that_the_server_ends_is_over(served: Served) -> None:
    with watched(served) as events:
        served.cluster.end_watches()
        assert list(events) == []


def test_a_watch_ends_at_its_limit_though_the_server_goes_on(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch.math, "ceil", lambda seconds: 60)  # what the server is told
    began = time.monotonic()
    with watched(served, seconds=0.3) as events:
        assert list(events) == []
    assert 0.3 <= time.monotonic() - began < 10


def test_another_thread_stops_a_watch_that_is_being_read(served: Served) -> None:
    began = time.monotonic()
    with watched(served) as events:
        threading.Timer(0.1, events.stop).start()
        assert list(events) == []
    assert time.monotonic() - began < 10


def test_an_expired_version_asks_for_a_new_list(served: Served) -> None:
    with watched(served) as events:
        served.cluster.tell("ERROR", NODES, {**status(410, "Expired", "too old resource version"), "metadata": {}})
        with pytest.raises(ApiError, match="WATCH /api/v1/nodes: 410 Expired: too old") as caught:
            next(events)
    assert caught.value.transient


def test_what_is_no_event_is_an_error(served: Served) -> None:
    with watched(served) as events:
        served.cluster.history.append((NODES, {"object": {"metadata": {}}}))
        served.cluster.add_node()
        with pytest.raises(ApiError, match="an event is no JSON object of a type and an object"):
            next(events)


@pytest.mark.parametrize("code", [403, 410, 429, 500])
def test_a_refused_watch_is_an_error_at_once(served: Served, code: int) -> None:
    served.cluster.faults = [Fault("GET", NODES, code, "Because", "no", times=9)]
    with pytest.raises(ApiError, match=f"GET /api/v1/nodes: {code} Because: no"):
        watched(served)
    assert len(served.cluster.requests) == 1


def test_a_server_that_is_away_is_no_answer(served: Served) -> None:
    served.port = 1
    with pytest.raises(ApiError, match="NoAnswer"):
        watched(served)
