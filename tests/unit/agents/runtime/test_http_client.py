"""Tests that the time of a GET request is limited."""

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

from agents.runtime import http_client
from agents.runtime.http_client import FetchError, fetch
from tests.support.informing import PATIENCE_SECONDS


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


def test_requests_share_one_https_handler_because_each_reads_all_ca_certificates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = threading.Barrier(8)
    made: list[object] = []

    class Slow(urllib.request.HTTPSHandler):
        def __init__(self) -> None:
            made.append(self)
            time.sleep(0.05)
            super().__init__()

    def attempt(number: int) -> None:
        together.wait()
        with pytest.raises(FetchError, match="refused"):
            fetch(f"http://queue/{number}")

    monkeypatch.setattr(http_client, "_HANDLERS", (urllib.request.HTTPHandler, Slow))
    monkeypatch.setattr(http_client, "_made", [])
    refused = mock.Mock(side_effect=urllib.error.URLError("refused"))
    with opening(refused), ThreadPoolExecutor(8) as threads:
        list(threads.map(attempt, range(8)))
    assert len(made) == 1
