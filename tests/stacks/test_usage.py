"""A history of use, from a Prometheus that answers on loopback and from files."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest

from stacks import usage
from stacks.__main__ import main
from tenancy.memory_history import Sample
from tests.policy.graphs import INFERENCE, NODE_4
from tests.stacks.prod import ROOT

HEADER = "time,workload,mib\n"


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
    values = {"data": {"result": [{"values": [[60, "5000.5"], [120, "6000"]]}]}}
    with prometheus(values) as (address, asked):
        samples = usage.read(address, NODE_4, days=7)
    assert samples[:2] == [Sample(60, "inference", 5000.5), Sample(120, "inference", 6000)]
    assert [sample.workload for sample in samples] == ["inference"] * 2 + ["clickhouse"] * 2
    assert asked[0]["query"] == [
        'sum(container_memory_working_set_bytes{namespace="inference",pod=~"inference(-.*)?",container!=""}) / 1048576'
    ]
    assert float(asked[0]["end"][0]) - float(asked[0]["start"][0]) == pytest.approx(7 * 86_400)


@pytest.mark.parametrize(("days", "step"), [(1, 60), (7, 60), (30, 240), (365, 2880)])
def test_prometheus_is_asked_for_no_more_points_than_it_gives(days: int, step: int) -> None:
    with prometheus({"data": {"result": []}}) as (address, asked):
        assert usage.read(address, NODE_4, days=days) == []
    assert asked[0]["step"] == [str(step)]
    assert days * 86_400 / step <= 11_000


@pytest.mark.parametrize(("answer", "status"), [({"error": "no"}, 200), ({}, 503), ([], 200)])
def test_a_prometheus_that_does_not_tell_is_an_error(answer: object, status: int) -> None:
    with (
        prometheus(answer, status) as (address, _),
        pytest.raises(usage.UsageError, match="does not tell what inference held"),
    ):
        usage.read(address, NODE_4, days=7)


def test_a_prometheus_that_is_not_there_is_an_error() -> None:
    with pytest.raises(usage.UsageError, match="does not tell what inference held"):
        usage.read("http://127.0.0.1:9", NODE_4, days=7)


def test_a_file_has_a_line_a_sample(tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(HEADER + "60,inference,5000\n120,clickhouse,1.5\n")
    assert usage.read(str(file), NODE_4, days=7) == [Sample(60, "inference", 5000), Sample(120, "clickhouse", 1.5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,mib\n", "the columns must be time, workload, mib"),
        (HEADER + "60,inference,much\n", ":2: time and mib must be numbers"),
        (HEADER + "60,inference\n", ":2: time and mib must be numbers"),
        (HEADER + "60,inference,nan\n", ":2: time and mib must be finite"),
    ],
)
def test_a_file_that_is_no_history_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(text)
    with pytest.raises(usage.UsageError, match=message):
        usage.read(str(file), NODE_4, days=7)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(usage.UsageError, match="cannot be read: No such file"):
        usage.read(str(tmp_path / "usage.csv"), NODE_4, days=7)


def prod_history(inference_mib: int) -> str:
    rows = [
        f"{minute * 60},{name},{mib}\n"
        for minute in range(120)
        for name, mib in (("inference", inference_mib), ("embeddings", 5000), ("clickhouse", 5000))
    ]
    return HEADER + "".join(rows)


@pytest.mark.parametrize(("inference_mib", "code"), [(INFERENCE.steady_mib, 0), (INFERENCE.steady_mib + 1, 1)])
def test_the_report_of_prod_ends_with_whether_the_declarations_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inference_mib: int, code: int
) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(prod_history(inference_mib))
    assert main(["memory-report", "--stack", "prod", "--from", str(file)], ROOT) == code
    text = capsys.readouterr().out
    assert text.startswith("node-4: 120 minutes of all workloads, 1970-01-01 00:00 to 1970-01-01 01:59\n")
    assert ("! memory_pools.node-4.workloads.inference.steady_mib: usually holds 5121" in text) == bool(code)


def test_a_history_without_a_workload_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(HEADER + "60,inference,5000\n")
    assert main(["memory-report", "--stack", "prod", "--from", str(file)], ROOT) == 1
    assert "none at all: clickhouse, embeddings" in capsys.readouterr().err
