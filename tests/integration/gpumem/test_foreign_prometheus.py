"""Tests that a report reads a Prometheus that others run: behind a login, for several clusters, with renamed labels."""

import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumem import cli, history
from gpumem.arguments import parser
from gpumem.init import peaks
from gpumem.prometheus import Access, HistoryError, Prometheus, access, with_matchers, without_password
from tenancy.ledger import Ledger, Pool, Seat
from tenancy.names import METRIC_POD_USED, RECORDED_USED

NOW = 1_700_000_040.0
T4 = Pool(name="t4", node_selector={"a": "b"}, nodes=1, device_count=1, memory_mib=15360, reserve_mib=1360)
LEDGER = Ledger(
    domain="example.com", pools=(T4,), seats=(Seat(name="chat", tenant="chat", pool="t4", gpumem_mib=5000),)
)


class Server(http.server.ThreadingHTTPServer):
    """Answers each query whose metric is in `answers` with these labels and the value."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, dict[str, str], str]] = []
        self.headers: list[dict[str, str]] = []
        self.queries: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        self.server.headers.append(dict(self.headers))
        self.server.queries.append(asked["query"])
        found = [
            {"metric": labels, "value": [NOW, value], "values": [[float(asked.get("start", NOW)), value]]}
            for metric, labels, value in self.server.answers
            if re.search(metric, asked["query"])
        ]
        body = json.dumps({"status": "success", "data": {"result": found}}).encode()
        self.send_response(200 if "login" not in self.headers.get("Cookie", "") else 401)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


def given(*flags: str) -> Access:
    return access(parser().parse_args(["advise", "--from", "http://x", *flags]))


def test_a_token_and_headers_are_sent(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    found = given("--bearer-token-file", str(tmp_path / "token"), "--header", "X-Scope-OrgID: prod")
    Prometheus(server.url, found).at("up", NOW)
    assert server.headers[0]["Authorization"] == "Bearer abc"
    assert server.headers[0]["X-Scope-Orgid"] == "prod"
    assert "abc" not in repr(found)


def test_a_password_is_sent_and_never_shown(server: Server) -> None:
    url = server.url.replace("//", "//reader:s3cr%40t@")
    client = Prometheus(url)
    client.at("up", NOW)
    assert server.headers[0]["Authorization"] == "Basic cmVhZGVyOnMzY3JAdA=="
    assert client.address == server.url
    assert "s3cr" not in repr(client)


@pytest.mark.parametrize("url", ["http://reader:s3cret@127.0.0.1:1", "https://reader:s3cret@prom.invalid/x"])
def test_an_error_shows_no_password(url: str) -> None:
    with pytest.raises(HistoryError) as error:
        Prometheus(url).at("up", NOW)
    assert "s3cret" not in str(error.value)
    assert without_password(url) in str(error.value)


def test_a_wrong_address_shows_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    stack = ["--stack", "Pulumi.prod.yaml", "--currency", "EUR"]
    assert cli.main(["bill", "--from", "htp://reader:s3cret@prom", *stack], {}) == 1
    said = capsys.readouterr().err
    assert "htp://prom" in said
    assert "s3cret" not in said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--bearer-token-file", "/none"], "--bearer-token-file /none cannot be read"),
        (["--ca-file", "/none"], "--ca-file /none is no file"),
    ],
)
def test_a_missing_file_is_an_error(flags: list[str], message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        given(*flags)


@pytest.mark.parametrize(
    ("query", "matched"),
    [
        ('max(a{b="c{"}) / on (d) e:f:sum', 'max(a{m="v",b="c{"}) / on (d) e:f:sum{m="v"}'),
        ("max by (x) (max_over_time(a[5m]))", 'max by (x) (max_over_time(a{m="v"}[5m]))'),
        (
            "sum_over_time((max by (t) (r:u:sum))[3599999ms:1m])",
            'sum_over_time((max by (t) (r:u:sum{m="v"}))[3599999ms:1m])',
        ),
        (peaks.dcgm_query(28), peaks.dcgm_query(28).replace("USED[", 'USED{m="v"}[')),
    ],
)
def test_each_metric_of_a_query_gets_the_matchers(query: str, matched: str) -> None:
    assert with_matchers(query, given("--match", "m=v").matchers) == matched
    assert with_matchers(query, ()) == query


def test_every_query_of_a_report_is_matched(server: Server) -> None:
    history.read(server.url, LEDGER, days=1, now=NOW, access=given("--match", "cluster=prod"))
    assert len(server.queries) >= 3
    assert all('cluster="prod"' in query for query in server.queries)


def test_series_of_several_clusters_end_the_report(server: Server) -> None:
    server.answers = [("count by", {"cluster": name}, "1") for name in ("prod", "staging")]
    with pytest.raises(HistoryError, match=r"several clusters, by their label cluster \(prod, staging\); choose one"):
        history.read(server.url, LEDGER, days=1, now=NOW)


def test_renamed_labels_end_the_report_and_nothing_is_unused(server: Server) -> None:
    server.answers = [("count by", {"exported_namespace": "chat"}, "1")]
    with pytest.raises(HistoryError, match="renamed the exporter's to exported_namespace, so that no pod can be told"):
        history.read(server.url, LEDGER, days=1, now=NOW)
    Prometheus(server.url).refuse_what_is_mixed(METRIC_POD_USED, NOW, 1, renamed=False)


@pytest.mark.parametrize("blank", ["NaN", "+Inf", "4294967295", "9223372036854775792", "2147483632", "140737488355328"])
def test_a_blank_value_is_skipped_and_listed(server: Server, blank: str) -> None:
    server.answers = [("up", {"pod": "a"}, blank), ("up", {"pod": "b"}, "4321")]
    client = Prometheus(server.url)
    assert [[value for _, value in series.values] for series in client.at("up", NOW)] == [[], [4321.0]]
    assert client.skipped == {'blank values of a series (pod="a"), which are no amounts'}


def test_a_report_lists_what_was_skipped(server: Server) -> None:
    server.answers = [("sum by", {"pod": "chat-1", "pod_uid": "u"}, "NaN")]
    uses = history.read(server.url, LEDGER, days=1, now=NOW)
    assert any("blank values of a series" in line for line in uses.unknown)


def test_the_recorded_series_has_a_colon() -> None:
    assert ":" in RECORDED_USED
