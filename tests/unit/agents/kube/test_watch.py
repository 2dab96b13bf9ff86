"""Watches: what they ask, and what is made of each event. Those over a wire have tests of their own."""

import pytest

from agents.kube.client import ApiError
from agents.kube.nodes import NODES
from tests.support.fake_cluster import Fault, Served, status
from tests.support.informing import watched


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


def test_a_watch_that_the_server_ends_is_over(served: Served) -> None:
    with watched(served) as events:
        served.cluster.end_watches()
        assert list(events) == []


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
        with pytest.raises(ApiError, match="an event is not a JSON object with a type and an object"):
            next(events)


@pytest.mark.parametrize("code", [403, 410, 429, 500])
def test_a_refused_watch_is_an_error_at_once(served: Served, code: int) -> None:
    served.cluster.faults = [Fault("GET", NODES, code, "Because", "no", times=9)]
    with pytest.raises(ApiError, match=f"GET /api/v1/nodes: {code} Because: no"):
        watched(served)
    assert len(served.cluster.requests) == 1
