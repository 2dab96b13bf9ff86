"""A history of use, from a real Prometheus, and from one that answers what a test has it answer."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlparse

import pytest

from gpumem import cli, host_memory
from gpumem.prometheus import HistoryError
from tenancy.host_memory.history import UsageSample
from tests.support.graphs import INFERENCE, NODE_4
from tests.support.remembering import prometheus as prometheus_of


def read(source: str, days: int = 7) -> list[UsageSample]:
    return host_memory.read(source, [NODE_4], days=days)["node-4"]


@contextmanager
def prometheus(answer: object, status: int = 200) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    """Its address, and what it was asked."""
    asked: list[dict[str, list[str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(parse_qs(urlparse(self.path).query))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", asked
        server.shutdown()
        thread.join()


def test_each_workload_is_asked_for_by_namespace_and_name() -> None:
    values = {"status": "success", "data": {"result": [{"values": [[60, "5000.5"], [120, "6000"]]}]}}
    with prometheus(values) as (address, asked):
        samples = read(address)
    assert samples[:2] == [UsageSample(60, "inference", 5000.5), UsageSample(120, "inference", 6000)]
    assert [sample.workload for sample in samples] == ["inference"] * 2 + ["clickhouse"] * 2
    assert asked[0]["query"] == [
        'sum(container_memory_working_set_bytes{namespace="inference",pod=~"inference(-.*)?",container!=""}) / 1048576'
    ]
    assert float(asked[0]["end"][0]) - float(asked[0]["start"][0]) == pytest.approx(7 * 86_400)


@pytest.mark.parametrize(("days", "step"), [(1, 60), (7, 60), (30, 240), (365, 2880)])
def test_prometheus_is_asked_for_no_more_points_than_it_gives(days: int, step: int) -> None:
    with prometheus({"status": "success", "data": {"result": []}}) as (address, asked):
        assert read(address, days) == []
    assert asked[0]["step"] == [str(step)]
    assert days * 86_400 / step <= 11_000


@pytest.mark.parametrize(("answer", "status"), [({"error": "no"}, 200), ({}, 503), ([], 200)])
def test_a_prometheus_that_does_not_tell_is_an_error(answer: object, status: int) -> None:
    with (
        prometheus(answer, status) as (address, _),
        pytest.raises(HistoryError, match="does not tell what inference held"),
    ):
        read(address)


def test_what_prometheus_says_of_a_request_that_it_refuses_is_told() -> None:
    refusal = {"status": "error", "errorType": "bad_data", "error": "exceeded maximum resolution"}
    with (
        prometheus(refusal, 400) as (address, _),
        pytest.raises(HistoryError, match="HTTP Error 400: Bad Request: exceeded maximum resolution"),
    ):
        read(address)


WORKING_SET = "container_memory_working_set_bytes"
MINUTES = 180


def cadvisor(namespace: str, pod: str, container: str, mib: int) -> Iterator[tuple[str, int]]:
    """A series and its value, and that of the pod as a whole, as a kubelet serves both."""
    for name in (container, ""):
        yield f'{WORKING_SET}{{namespace="{namespace}",pod="{pod}",container="{name}"}}', mib * 2**20


# Two containers and a second pod of inference, for five minutes at its peak, and somebody else of a similar name.
USUAL = dict(
    (
        *cadvisor("inference", "inference-7d9-x", "main", 3000),
        *cadvisor("inference", "inference-7d9-x", "sidecar", 500),
        *cadvisor("inference", "inference-7d9-y", "main", 1500),
        *cadvisor("inference", "inferences-0", "main", 40_000),
        *cadvisor("other", "inference-0", "main", 40_000),
        *cadvisor("inference", "embeddings-0", "main", 5000),
        *cadvisor("signoz", "clickhouse", "main", 4900),
    )
)
PEAK = dict(cadvisor("inference", "inference-7d9-x", "main", 18_000))


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Prometheus that remembers three hours."""
    first = (int(time.time()) - MINUTES * 60) // 60 * 60
    lines = [f"# TYPE {WORKING_SET} gauge"]
    for series, usual in USUAL.items():
        for minute in range(MINUTES):
            size = PEAK.get(series, usual) if 60 <= minute < 65 else usual
            lines.append(f"{series} {size} {first + minute * 60}")
    with prometheus_of(tmp_path_factory.mktemp("prometheus"), lines) as address:
        yield address


def test_a_real_prometheus_tells_what_the_pods_of_a_workload_held_together(remembering: str) -> None:
    held = [sample.mib for sample in read(remembering, days=1) if sample.workload == "inference"]
    assert min(held) == 5000
    assert max(held) == 20_000
    assert held.count(5000) >= MINUTES - 15
    assert held.count(20_000) == 5


def test_prods_report_is_drawn_from_a_real_prometheus(remembering: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise", "--host-memory", "--stack", "prod", "--from", remembering, "--days", "1"], {}) == 0
    text = capsys.readouterr().out
    assert "together at most 29900 of 62464 MiB" in text
    assert re.search(r"^inference +5000 +5120 +20000 +20480 +250\.0 +1024$", text, re.MULTILINE)


def test_a_real_prometheus_says_why_it_refuses(remembering: str) -> None:
    with pytest.raises(HistoryError, match=r"HTTP Error 400: Bad Request: .*parse error"):
        host_memory.read(remembering, [replace(NODE_4, workloads=(replace(INFERENCE, tenant='"'),))], days=1)


def test_a_prometheus_that_is_not_there_is_an_error() -> None:
    with pytest.raises(HistoryError, match="does not tell what inference held"):
        read("http://127.0.0.1:9")
