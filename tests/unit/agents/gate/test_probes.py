"""Tests that a probe gives demand, no demand, or a failure."""

from datetime import UTC, datetime

import pytest

from agents.gate.probes import FreeMemory, HttpJson, ProbeError, PrometheusQuery, Window
from agents.runtime.http_client import fetch

NOW = datetime(2026, 11, 20, 3, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("window", "inside"),
    [
        (Window(between="02:00-06:00", time_zone="Etc/UTC"), True),
        (Window(between="03:00-06:00", time_zone="Etc/UTC"), True),
        (Window(between="02:00-03:00", time_zone="Etc/UTC"), False),
        (Window(between="22:00-04:00", time_zone="Etc/UTC"), True),
        (Window(between="22:00-02:00", time_zone="Etc/UTC"), False),
        (Window(between="02:00-06:00", time_zone="Asia/Tokyo"), False),
        (Window(between="11:30-12:30", time_zone="Asia/Tokyo"), True),
    ],
)
def test_a_window_is_read_in_its_time_zone_and_may_cross_midnight(window: Window, inside: bool) -> None:
    assert window.answer(NOW, fetch).wanted is inside


def test_without_a_signal_there_is_always_demand_and_nobody_is_asked() -> None:
    assert FreeMemory().answer(NOW, fetch).wanted


HTTP = HttpJson(url="http://queue/status", field="queue.pending")
QUERY = PrometheusQuery(address="http://prometheus:9090/", query="sum(queue)")


@pytest.mark.parametrize(
    ("signal", "body", "wanted"),
    [
        (HTTP, '{"queue": {"pending": 1}}', True),
        (HTTP, '{"queue": {"pending": 0}}', False),
        (QUERY, '{"data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "1"]}]}}', True),
        (QUERY, '{"data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "0.5"]}]}}', False),
        (QUERY, '{"data": {"resultType": "scalar", "result": [1, "7"]}}', True),
    ],
)
def test_a_probe_compares_its_number(signal: HttpJson | PrometheusQuery, body: str, wanted: bool) -> None:
    asked: list[str] = []
    assert signal.answer(NOW, lambda url: asked.append(url) or body.encode()).wanted is wanted  # type: ignore[func-returns-value]
    assert asked in (["http://queue/status"], ["http://prometheus:9090/api/v1/query?query=sum%28queue%29"])


@pytest.mark.parametrize(
    ("signal", "body"),
    [
        (HTTP, ""),
        (HTTP, "[]"),
        (HTTP, "{}"),
        (HTTP, '{"queue": 3}'),
        (HTTP, '{"queue": {"pending": "2"}}'),
        (HTTP, '{"queue": {"pending": true}}'),
        (HTTP, '{"queue": {"pending": NaN}}'),
        (HTTP, f'{{"queue": {{"pending": {"9" * 401}}}}}'),
        (HTTP, f'{{"queue": {{"pending": {"9" * 5_000}}}}}'),
        (HTTP, "[" * 60_000),
        (HTTP, '{"queue":' * 6_000),
        (HTTP, '{"queue": {"pending": ' + "[" * 900 + "]" * 900 + "}}"),
        (QUERY, '{"data": ' + "[" * 900 + "]" * 900 + "}"),
        (QUERY, "{}"),
        (QUERY, '{"data": null}'),
        (QUERY, '{"data": {"resultType": "vector", "result": []}}'),
        (QUERY, '{"data": {"resultType": "vector", "result": [{"value": [1, "2"]}, {"value": [1, "2"]}]}}'),
        (QUERY, '{"data": {"resultType": "vector", "result": [{"value": [1, "NaN"]}]}}'),
        (QUERY, '{"data": {"resultType": "matrix", "result": [{"values": [[1, "2"]]}]}}'),
    ],
)
def test_a_probe_without_a_number_says_neither_yes_nor_no(signal: HttpJson | PrometheusQuery, body: str) -> None:
    with pytest.raises(ProbeError) as failed:
        signal.answer(NOW, lambda url: body.encode())
    assert len(str(failed.value)) < 500, "the answer is a tenant's, and the reason goes into the log"
