"""Tests that `kubectl gpumem board` has the numbers of the reports, and only the names that a reader may see."""

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import unescape
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kube.client import ApiError, Object
from agents.kube.pods import PODS
from agents.runtime.http_message import HttpRequest
from gpumem import board_server, cli, draw_board
from gpumem.board import Board, without_names
from gpumem.board_server import BoardPage
from gpumem.draw_board import board_page
from tenancy.drawing.text import printable
from tests.support import board as sampled
from tests.support import search
from tests.support.board import read, sample
from tests.support.kubectl import FakeApi, api, pod
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_SECONDS

# Parts of the names of pods and namespaces in the sample.
NAMES = re.compile("immich|llama|translate|caption|train|tts|team-a|x2x9w")
# Every element that the page has of its own.
PARTS = "html head meta title style noscript body p main h1 h2 h3 section svg rect table tr th td div script span"
ELEMENTS = {*PARTS.split()}
HOSTILE = "</td></main><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x00\x1b[2J\u202e"


def tree(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html.removeprefix("<!doctype html>"))  # noqa: S314 (the page is ours)


def text(html: str) -> str:
    return " ".join("".join(tree(html).find("body/main").itertext()).split())  # type: ignore[union-attr]


def rows(html: str, first: str) -> list[dict[str, str]]:
    """Returns the rows of the tables that begin with the header `first`. The keys are the headers."""
    found = []
    for table in tree(html).iter("table"):
        header, *lines = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
        found += [dict(zip(header, line, strict=True)) for line in lines if header[0] == first]
    return found


def bars(html: str) -> list[list[str]]:
    """Returns the labels of the parts of each bar."""
    return [[part.text or "" for part in each.iter("title")] for each in tree(html).iter("svg") if each.get("role")]


def printed(found: FakeApi, words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """Returns the output of a command with -o json."""

    class Reach:
        def __enter__(self) -> FakeApi:
            return found

        def __exit__(self, *_: object) -> None: ...

    found.__dict__["namespace"] = lambda: "immich"
    cli.main([*words.split(), "-o", "json"], {}, lambda flags: Reach())  # type: ignore[arg-type,return-value]
    return json.loads(capsys.readouterr().out)


def test_the_page_has_the_pods_that_who_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (node,) = printed(sample(), "who", capsys)["nodes"]
    shown = rows(board_page(read(sample()), 5), "NAMESPACE")

    def number(cell: str) -> int | None:
        return None if cell == "-" else int(cell)

    found = [
        (row["NAMESPACE"], row["POD"], number(row["DECLARED"]), number(row["USED"]), number(row["OVER"]), row["STATE"])
        for row in shown
        if "POD" in row
    ]
    assert len(found) == 5
    assert found == [
        (
            each["namespace"],
            each["name"],
            each["declared_mib"] or None,
            each["used_mib"],
            each["over_mib"] or None,
            each["state"],
        )
        for each in node["devices"][0]["pods"]
    ]


@pytest.mark.parametrize("target", ["-n caption caption-84b5c6d7f8-m4n2v", "-n team-a job/train-large"])
def test_the_page_has_the_reason_that_why_prints(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = sample()
    for namespace in ("caption", "team-a"):
        found.objects[f"/api/v1/namespaces/{namespace}"] = {"metadata": {"name": namespace}}
    (answer,) = printed(found, f"why {target}", capsys)["answers"]
    shown = text(board_page(read(sample()), 5))
    expected = f"{answer['title']} [{answer['reason']}] {answer['text']}"
    assert expected.replace(" ", "") in shown.replace(" ", "")
    assert f"do: {answer['do']}" in shown


def test_a_user_of_one_namespace_sees_only_its_pods() -> None:
    found = sample()
    found.refused.add(PODS)
    html = board_page(read(found), 5)
    assert {row["NAMESPACE"] for row in rows(html, "NAMESPACE") if "POD" in row} == {"immich"}
    assert {*NAMES.findall(text(html))} <= {"immich", "x2x9w"}
    assert "with the pods of immich" in text(html)
    assert "what others hold is not known" in text(html)


def test_a_board_without_names_has_the_sums_and_no_name() -> None:
    found = sample()
    found.lists[PODS].append(pod("caption-2", 2500, "caption", limits={"nvidia.com/gpu": "x"}))
    html = board_page(without_names(read(found)), 5)
    assert NAMES.findall(html.partition("<body>")[2]) == []
    whole = "4 of 4 GPUs promised to queues, 4 are there, 1 of them free"
    for sentence in ("13800 of 14000 MiB held", whole, "1 x running pods hold the memory", "1 facts", "vision"):
        assert sentence in text(html)


@search.examples(20, soak=1000)
@given(st.text(max_size=80))
def test_each_text_is_readable_in_the_page_and_ends_nothing(given_text: str) -> None:
    found = read(SAMPLE)
    users = replace(found.who, unknown=(given_text,), observed=given_text)
    html = board_page(replace(found, who=users), 5, given_text)
    assert {each.tag for each in tree(html).iter()} <= ELEMENTS
    shown = printable(given_text)
    assert unescape(html).count(shown) >= 3


def test_the_policy_permits_only_the_pages_own_style_and_script() -> None:
    html = board_page(read(sample()), 5)
    for name in ("style", "script"):
        (inner,) = re.findall(f"<{name}>(.*?)</{name}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in draw_board.CONTENT_SECURITY_POLICY
    assert "default-src 'none'" in draw_board.CONTENT_SECURITY_POLICY
    assert re.findall(r'style="|https?://|<link|src=|unsafe', html + draw_board.CONTENT_SECURITY_POLICY) == []


def test_one_unreadable_workload_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sample()
    found.lists["/api/v1/namespaces/caption/events"] = [
        {"metadata": {}, "involvedObject": {}, "lastTimestamp": "no time"}
    ]
    html = board_page(read(found), 5)
    assert "the reason of pod caption/caption-84b5c6d7f8-m4n2v: Invalid isoformat string" in text(html)
    assert "job team-a/train-large" in text(html)
    assert "ClusterQueue vision: 0 of 1 waiting are before it" in text(html)


def test_without_kueues_workloads_the_page_has_the_rest() -> None:
    found = sample()
    found.refused.add("/apis/kueue.x-k8s.io/v1beta2/workloads")
    html = board_page(read(found), 5)
    assert "the work in queues is not known" in text(html)
    assert "13800 of 14000 MiB held" in text(html)


@dataclass
class Counted(FakeApi):
    """Counts the requests for each path."""

    def __post_init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def get(self, path: str) -> Object:
        self.asked[path] += 1
        return super().get(path)

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        self.asked[f"{path} {parameters}"] += 1
        return super().items(path, **parameters)


def counted(found: FakeApi) -> Counted:
    return Counted(found.objects, found.lists, found.texts, found.refused)


def test_many_waiting_pods_of_a_namespace_cost_the_requests_of_one() -> None:
    one, many = counted(sample()), counted(sample())
    for number in range(18):
        waiting = pod(f"caption-{number}", 2500, "caption", status={"conditions": [sampled.WAITS]})
        many.lists[PODS].append(waiting)
    assert len(read(many).waits) == 20
    read(one)
    assert many.asked.total() == one.asked.total()


def test_waiting_pods_beyond_the_limit_are_listed_without_a_reason() -> None:
    found = sample()
    found.lists[PODS] += [pod(f"caption-{number:03d}", 2500, "caption") for number in range(150)]
    waits = read(found).waits
    assert len(waits) == 152
    assert [wait.answer is None for wait in waits] == [False] * 20 + [True] * 132
    assert "and 52 more, which kubectl gpumem lists" in text(board_page(read(found), 5))


def test_a_device_with_an_alarm_comes_first() -> None:
    found = read(sample())
    (node,) = found.who.nodes
    (device,) = node.devices
    calm = replace(device, measured_free_mib=5000, held_mib=1, index=1)
    html = board_page(replace(found, who=replace(found.who, nodes=(replace(node, devices=(calm, device)),))), 5)
    assert [each.text for each in tree(html).iter("h3")][:2] == ["k8s-node1, gpu 0", "k8s-node1, gpu 1"]


def test_what_is_wrong_and_what_was_done_come_first_and_then_the_pool_in_trouble() -> None:
    found = read(sample())
    (pool,), (node,) = found.who.pools, found.who.nodes
    (device,) = node.devices
    calm = replace(device, measured_free_mib=5000, held_mib=1)
    idle = replace(node, node="idle-1", pool="a-idle", devices=(calm,))
    users = replace(found.who, pools=(replace(pool, pool="a-idle"), pool), nodes=(idle, node))
    html = board_page(replace(found, who=users), 5)
    titles = [each.text for each in tree(html).iter("h2")]
    assert titles[:4] == ["Platform", "Last hour", "t4", "a-idle"]
    assert "pool t4 is wrong: k8s-node1, gpu 0 has 1200 MiB free, under the floor of 1536" in text(html)
    assert "GpuMemoryRecycled" in text(html)


def test_what_is_over_budget_is_an_alarm_and_both_bars_have_the_device_as_their_scale() -> None:
    html = board_page(read(sample()), 5)
    assert [cell.text for cell in tree(html).iter("td") if "bad" in (cell.get("class") or "")] == ["1100", "900"]
    amounts = [sum(int(part.rpartition(" ")[2]) for part in each) for each in bars(html)]
    assert amounts == [15360, 15360]


def test_a_bar_without_memory_has_no_parts() -> None:
    found = read(sample())
    (node,) = found.who.nodes
    empty = replace(
        node.devices[0], offered_mib=0, held_mib=0, kept_mib=0, measured_used_mib=0, measured_free_mib=0, pods=()
    )
    html = board_page(replace(found, who=replace(found.who, nodes=(replace(node, devices=(empty,)),))), 5)
    assert bars(html) == [[], []]


class Given:
    """Gives boards, or raises errors, one after the other."""

    def __init__(self, *answers: Board | Exception) -> None:
        self.answers = [*answers]
        self.calls = 0

    def __call__(self) -> Board:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


SAMPLE = sample()
GET = HttpRequest("GET", "/secret/")


def served(*answers: Board | Exception, seconds: int = 5) -> tuple[BoardPage, Given]:
    given_boards = Given(*answers)
    return BoardPage(read=given_boards, path="/secret/", seconds=seconds), given_boards


@pytest.mark.parametrize("error", [ApiError("GET /x", 500, "Internal", HOSTILE), ValueError("a number is odd")])
def test_after_an_error_the_page_keeps_its_numbers_and_names_the_error(error: Exception) -> None:
    page, _ = served(read(sample()), error)
    page.refresh()
    shown = text(page.answer(GET).body.decode())
    assert "13800 of 14000 MiB held" in shown
    assert "These numbers are old: " in shown
    assert ("a number is odd" if isinstance(error, ValueError) else "GET /x") in shown


def test_an_error_shows_no_name_on_a_board_without_names() -> None:
    page, _ = served(without_names(read(sample())), ApiError("GET /immich/secret", 500, "Internal", "immich/ml"))
    page.refresh()
    shown = page.answer(GET).body.decode().partition("<body>")[2]
    assert "the cluster could not be read; the log of the board has the reason" in shown
    assert NAMES.findall(shown) == []


def test_the_board_of_a_pod_answers_every_path_of_its_ingress_and_the_kubelet() -> None:
    page = BoardPage(read=Given(read(sample())), path=None, seconds=5)
    bodies = [page.answer(HttpRequest("GET", path)).body for path in ("/", "/gpus/", "/healthz")]
    assert bodies[0] == bodies[1]
    assert bodies[2] == b"ok\n"


def test_a_cluster_that_cannot_be_read_at_the_start_is_an_error() -> None:
    with pytest.raises(ApiError):
        served(ApiError("GET /x", 403, "Forbidden", "may not"))


def test_the_board_reads_the_cluster_only_for_readers_and_the_first_of_them_gets_new_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(board_server, "_PATIENCE_SECONDS", PATIENCE_SECONDS)
    given_boards, now = Given(read(sample())), [0.0]
    page = BoardPage(read=given_boards, path="/secret/", seconds=0, clock=lambda: now[0])
    now[0] = 1.0
    thread = threading.Thread(target=page.keep, daemon=True)
    thread.start()
    thread.join(0.2)
    assert given_boards.calls == 1
    given_boards.answers = [read(api([]))]
    assert "0 of 14000 MiB held" in text(page.answer(GET).body.decode())
    now[0] = 2.0


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/secret/", 200), ("GET", "/secret", 404), ("POST", "/secret/", 405)]
)
def test_the_page_answers_only_a_get_of_its_path(method: str, path: str, status: int) -> None:
    page, _ = served(read(sample()))
    assert page.answer(HttpRequest(method, path)).status == status


def test_the_response_keeps_the_page_to_itself() -> None:
    page, _ = served(read(sample()))
    head = page.answer(GET).encoded(last=True).partition(b"\r\n\r\n")[0].decode()
    assert "Content-Security-Policy: default-src 'none'; style-src 'sha256-" in head
    assert {"Cache-Control: no-store", "Referrer-Policy: no-referrer"} < {*head.split("\r\n")}


@pytest.mark.parametrize("name", sampled.PICTURES)
def test_the_picture_in_the_docs_is_the_page_of_today(name: str) -> None:
    """`python -m tests.support.board` draws the pictures again."""
    assert (ROOT / "docs" / "pictures" / f"{name}.svg").read_text() == sampled.picture(name)
