"""Tests that the time of a GET request is limited."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from unittest import mock

import pytest

from agents.runtime import http_client
from agents.runtime.http_client import FetchError, fetch
from tests.support.waiting import PATIENCE_SECONDS


def opening(http_open: Callable[..., object]) -> "mock._patch[Callable[..., object]]":
    return mock.patch.object(urllib.request.HTTPHandler, "http_open", http_open)


def test_who_does_not_answer_in_time_is_left_to_himself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a name server, the system's resolver waits without a time limit."""
    monkeypatch.setattr(http_client, "TOTAL_SECONDS", 0.01)
    opened, released = threading.Event(), threading.Event()
    with opening(lambda handler, asked: opened.set() or released.wait()):
        with pytest.raises(FetchError, match=r"http://queue/: no complete"):
            fetch("http://queue/")
        assert opened.wait(PATIENCE_SECONDS)  # A later thread would make its request in the next test.
    released.set()
