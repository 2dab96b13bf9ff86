"""Tests that a bad response of Prometheus causes an error message of one sentence."""

import argparse
import http.client
import io
import json
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.request import Request

import pytest

from gpumem import prometheus
from gpumem.prometheus import HistoryError, Prometheus, Series, access, without_password

SERVER = Prometheus("http://prometheus:9090/")


def answer(result: Any, **fields: Any) -> bytes:
    return json.dumps({"status": "success", "data": {"result": result}, **fields}).encode()


def asked(monkeypatch: pytest.MonkeyPatch, body: bytes | Exception) -> list[Series]:
    def urlopen(request: Request, timeout: float, context: None) -> io.BytesIO:
        assert request.full_url.startswith(
            "http://prometheus:9090/api/v1/query_range?query=up&start=60.000&end=120.000&step=60"
        )
        if isinstance(body, Exception):
            raise body
        return io.BytesIO(body)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    return [*SERVER.over("up", 60, 120, 60)]


def test_series_have_labels_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, answer([{"metric": {"pod": "a"}, "values": [[60, "1.5"], [120, "0"]]}]))
    assert found == [Series({"pod": "a"}, ((60.0, 1.5), (120.0, 0.0)))]


def valued(*pairs: Any) -> bytes:
    return answer([{"metric": {}, "values": pairs}])


REFUSED: dict[str, tuple[bytes | Exception, str]] = {
    "a time without end": (valued([1e300, "2"]), "1e+300 is no time in seconds since 1970"),
    "a word": (valued([60, "x"]), "could not convert string to float: 'x'"),
    "a failure": (answer([], status="error", error="too many samples"), "too many samples"),
    "parts": (answer([], warnings=["store 2 is away"]), "the answer may lack parts: store 2 is away"),
    "no values": (answer([{"metric": {}}]), "the answer has not the form of Prometheus'"),
    "another form": (answer(["a"]), "the answer has not the form of Prometheus'"),
    "no JSON": (b"<html>", "Expecting value: line 1 column 1 (char 0)"),
    "cut off": (http.client.IncompleteRead(b"ok", 98), "IncompleteRead(2 bytes read, 98 more expected)"),
    "nobody": (ConnectionRefusedError(111, "Connection refused"), "[Errno 111] Connection refused"),
    "a refusal": (
        urllib.error.HTTPError("", 400, "Bad Request", Message(), io.BytesIO(b'{"error": "parse error"}')),
        "HTTP Error 400: Bad Request: parse error",
    ),
    "another server's refusal": (
        urllib.error.HTTPError("", 502, "Bad Gateway", Message(), io.BytesIO(b"no upstream\nmore")),
        "HTTP Error 502: Bad Gateway: no upstream",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_whatever_else_comes_is_one_sentence(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    body, said = REFUSED[case]
    with pytest.raises(HistoryError) as error:
        asked(monkeypatch, body)
    assert str(error.value) == f"http://prometheus:9090/: {said}"


def test_a_long_time_is_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    urls: list[str] = []

    def urlopen(request: Request, timeout: float, context: None) -> io.BytesIO:
        urls.append(request.full_url)
        return io.BytesIO(answer([]))

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    assert [*SERVER.over("up", 0, 2.5 * prometheus.MOST_POINTS, 1)] == []
    assert len(urls) == 3


@pytest.mark.parametrize("url", ["http://u:s3cret@h:9090/x", "u:s3cret@h:9090", "http://u:s3/cret@h:9090"])
def test_no_url_shows_its_password(url: str) -> None:
    assert "cret" not in without_password(url)


def test_a_token_of_two_lines_is_refused_without_being_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\nsecond\n")
    with pytest.raises(HistoryError, match="has more than one word") as refused:
        access(argparse.Namespace(headers=[], bearer_token_file=file, ca_file=None, matchers=[]))
    assert "second" not in str(refused.value)
