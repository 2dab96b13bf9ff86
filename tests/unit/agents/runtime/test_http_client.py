"""The time of a GET request is limited. The tests need no connection."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from unittest import mock

import pytest

from agents.runtime import http_client
from agents.runtime.http_client import FetchError, fetch


def opening(http_open: Callable[..., object]) -> "mock._patch[Callable[..., object]]":
    return mock.patch.object(urllib.request.HTTPHandler, "http_open", http_open)


def test_who_does_not_answer_in_time_is_left_to_himself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's resolver has no timeout while a name server is missing."""
    monkeypatch.setattr(http_client, "TOTAL_SECONDS", 0.01)
    released = threading.Event()
    with (
        opening(lambda handler, asked: released.wait()),
        pytest.raises(FetchError, match=r"http://queue/: no complete"),
    ):
        fetch("http://queue/")
    released.set()
