"""Tests watches over real TLS with chunked responses. tests/unit/agents/kube tests watches without connections."""

import threading
from types import SimpleNamespace

import pytest

from agents.kube import watch
from tests.support.api_server import ServedOverTls
from tests.support.informing import watched


def test_an_event_larger_than_a_read_is_whole(served: ServedOverTls) -> None:
    label = "x" * 200_000
    with watched(served) as events:
        served.cluster.add_node("n", labels={"long": label})
        assert next(events)["object"]["metadata"]["labels"] == {"long": label}


def test_a_watch_ends_at_its_limit_though_the_server_goes_on(
    served: ServedOverTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "math", SimpleNamespace(ceil=lambda seconds: 3600))
    with watched(served, seconds=0.3) as events:
        assert list(events) == []


def test_another_thread_stops_a_watch_that_is_being_read(served: ServedOverTls) -> None:
    with watched(served, seconds=3600) as events:
        threading.Timer(0.1, events.stop).start()
        assert list(events) == []
