"""Gates: who would be let in, who out, and why."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import demand, gate
from agents.api import ApiError
from agents.demand import Answer, HttpJson, ProbeError, Prometheus, Window
from agents.fetch import FetchError
from agents.gate import Settings
from agents.slack import Act, Entrance, Gate, decide
from agents.telemetry import NodeTelemetry
from tests.agents.cluster import SYSTEM, T4, Fault, Served
from tests.agents.exporters import card, measured

ALWAYS = Window(between="00:00-23:59")
NOW = datetime(2026, 11, 20, 3, 0, tzinfo=UTC)
YES, NO = Answer(True, "work"), Answer(False, "no work")
TTS = Gate(
    name="tts", namespace="tts", deployment="tts", pool="t4", need_mib=2048, margin_mib=256, samples=3, demand=ALWAYS
)
NEEDED_MIB = 2048 + 1536 + 256


def reading(*free_mib: int, problem: str | None = None) -> NodeTelemetry:
    devices = tuple(card(free, gpu) for gpu, free in enumerate(free_mib))
    return NodeTelemetry(pool=T4, node="n", devices=devices, problem=problem)


@pytest.mark.parametrize(
    ("entrance", "readings", "act", "words"),
    [
        (Entrance(gate=TTS, answer=YES), [reading(NEEDED_MIB)], Act.OPEN, "work"),
        (Entrance(gate=TTS, answer=YES), [reading(NEEDED_MIB - 1)], Act.KEEP, "no room: 3839 MiB are free, 3840 are"),
        (Entrance(gate=TTS, answer=YES), [reading(2000, 9000)], Act.OPEN, "work"),
        (Entrance(gate=TTS, answer=YES), [reading(2000, 2000)], Act.KEEP, "no room"),
        (Entrance(gate=TTS, answer=NO), [reading(9000)], Act.KEEP, "no work"),
        (Entrance(gate=TTS, answer=YES), [], Act.KEEP, "no telemetry, so nobody is let in"),
        (Entrance(gate=TTS, answer=YES), [reading(problem="HTTP 503")], Act.KEEP, "n: HTTP 503"),
        (Entrance(gate=TTS, answer=YES), [reading(9000), reading(problem="gone")], Act.KEEP, "n: gone"),
        (Entrance(gate=TTS, problem="the probe failed"), [reading(9000)], Act.KEEP, "the probe failed"),
        (Entrance(gate=TTS, replicas=1, answer=YES), [reading(9000)], Act.KEEP, "work"),
        (Entrance(gate=TTS, replicas=1, answer=NO), [reading(9000)], Act.CLOSE, "no work"),
        (Entrance(gate=TTS, replicas=1, answer=YES), [reading(1535)], Act.CLOSE, "under its floor of 1536"),
        (Entrance(gate=TTS, replicas=1, answer=YES), [reading(problem="gone")], Act.KEEP, "work"),
        (Entrance(gate=TTS, replicas=1, problem="the probe failed"), [reading(9000)], Act.KEEP, "the probe failed"),
        (Entrance(gate=TTS, replicas=3, answer=NO), [reading(1)], Act.KEEP, "somebody else scaled it to 3"),
    ],
)
def test_a_gate_would(entrance: Entrance, readings: list[NodeTelemetry], act: Act, words: str) -> None:
    (intent,) = decide([entrance], readings)
    assert intent.act is act
    assert words in intent.why


def test_two_gates_are_not_let_into_the_same_slack() -> None:
    others = replace(TTS, name="ytdlp")
    first, second = decide([Entrance(gate=TTS, answer=YES), Entrance(gate=others, answer=YES)], [reading(4096)])
    assert (first.act, second.act) == (Act.OPEN, Act.KEEP)


gates = st.builds(
    lambda name, need, margin: replace(TTS, name=name, need_mib=need, margin_mib=margin),
    st.text(min_size=1),
    st.integers(1, 8000),
    st.integers(0, 1000),
)


@given(st.lists(gates, unique_by=lambda each: each.name), st.lists(st.integers(0, 16000), min_size=1, max_size=3))
def test_gates_that_open_fit_above_the_floor_of_the_devices(opened: list[Gate], free_mib: list[int]) -> None:
    intents = decide([Entrance(gate=each, answer=YES) for each in opened], [reading(*free_mib)])
    taken_mib = sum(intent.gate.need_mib for intent in intents if intent.act is Act.OPEN)
    assert taken_mib <= sum(max(free - T4.floor_mib, 0) for free in free_mib)


@pytest.mark.parametrize(
    ("window", "inside"),
    [
        (Window(between="02:00-06:00"), True),
        (Window(between="03:00-06:00"), True),
        (Window(between="02:00-03:00"), False),
        (Window(between="22:00-04:00"), True),
        (Window(between="22:00-02:00"), False),
        (Window(between="02:00-06:00", time_zone="Asia/Tokyo"), False),
        (Window(between="11:30-12:30", time_zone="Asia/Tokyo"), True),
    ],
)
def test_a_window_is_read_in_its_time_zone_and_may_cross_midnight(window: Window, inside: bool) -> None:
    assert demand.ask(window, NOW).wanted is inside


HTTP = HttpJson(url="http://queue/status", field="queue.pending", at_least=2)
QUERY = Prometheus(address="http://prometheus:9090/", query="sum(queue)", at_least=2)


@pytest.mark.parametrize(
    ("signal", "body", "wanted"),
    [
        (HTTP, '{"queue": {"pending": 2}}', True),
        (HTTP, '{"queue": {"pending": 1}}', False),
        (QUERY, '{"data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "2"]}]}}', True),
        (QUERY, '{"data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "1.5"]}]}}', False),
        (QUERY, '{"data": {"resultType": "scalar", "result": [1, "7"]}}', True),
    ],
)
def test_a_probe_compares_its_number(signal: HttpJson | Prometheus, body: str, wanted: bool) -> None:
    asked: list[str] = []
    assert demand.ask(signal, NOW, lambda url: asked.append(url) or body.encode()).wanted is wanted  # type: ignore[func-returns-value]
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
        (QUERY, "{}"),
        (QUERY, '{"data": null}'),
        (QUERY, '{"data": {"resultType": "vector", "result": []}}'),
        (QUERY, '{"data": {"resultType": "vector", "result": [{"value": [1, "2"]}, {"value": [1, "2"]}]}}'),
        (QUERY, '{"data": {"resultType": "vector", "result": [{"value": [1, "NaN"]}]}}'),
        (QUERY, '{"data": {"resultType": "matrix", "result": [{"values": [[1, "2"]]}]}}'),
    ],
)
def test_a_probe_without_a_number_says_neither_yes_nor_no(signal: HttpJson | Prometheus, body: str) -> None:
    with pytest.raises(ProbeError):
        demand.ask(signal, NOW, lambda url: body.encode())


def test_a_probe_that_cannot_be_reached_is_an_error_with_its_address() -> None:
    with pytest.raises(FetchError, match=r"http://127\.0\.0\.1:1/"):
        demand.ask(replace(HTTP, url="http://127.0.0.1:1/"), NOW)


SETTINGS = Settings(
    ledger_namespace=SYSTEM,
    exporter_namespace="nodes",
    exporter_port=0,
    dry_run=True,
    interval_seconds=10,
    run_seconds=40,
    gates=(TTS,),
)


@pytest.fixture
def roomy(served: Served) -> Iterator[Served]:
    """A node with 4 GiB free and a Deployment at 0."""
    served.cluster.objects["/apis/apps/v1/namespaces/tts/deployments/tts/scale"] = {"spec": {}}
    with measured(served, card(4096)):
        yield served


def run(served: Served, **changes: Any) -> int:
    settings = replace(SETTINGS, exporter_port=served.exporter_port, **changes)
    return gate.run(settings, served.api(), served.time.clock(), served.log())


def test_a_gate_would_open_only_when_enough_samples_agree(roomy: Served) -> None:
    assert run(roomy) == 0
    assert [line["message"] for line in roomy.lines()[1:]] == [
        "would open if more samples agree",
        "would open if more samples agree",
        "would open",
        "would open",
    ]
    assert {method for method, _ in roomy.cluster.requests} == {"GET"}


def test_a_pass_that_the_server_failed_starts_the_count_again(roomy: Served) -> None:
    roomy.cluster.faults = [Fault("GET", "/api/v1/nodes", 410, "Expired", "too old", times=0)]
    failures = iter([0, 1, 0])

    def break_the_third_pass() -> None:
        roomy.cluster.faults[0].times = next(failures)

    roomy.time.meanwhile = break_the_third_pass
    assert run(roomy) == 0
    assert [line.get("samples") for line in roomy.lines()[1:]] == [1, 2, None, 1]


def test_a_deployment_that_is_not_there_keeps_its_gate_only(roomy: Served) -> None:
    assert run(roomy, gates=(replace(TTS, name="gone", deployment="gone"), TTS), run_seconds=0) == 0
    kept, opened = roomy.lines()[1:]
    assert (kept["gate"], kept["message"]) == ("gone", "keep")
    assert "404 NotFound" in kept["why"]
    assert opened["gate"] == "tts"


def test_missing_rights_end_the_run(roomy: Served) -> None:
    roomy.cluster.faults = [Fault("GET", "/apis/apps/v1", 403, "Forbidden", "cannot get deployments/scale")]
    with pytest.raises(ApiError, match="cannot get deployments/scale"):
        run(roomy)


def test_without_a_ledger_there_is_nothing_to_do(served: Served) -> None:
    assert run(served) == 0
