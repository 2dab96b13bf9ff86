"""Telemetry is believed when it is whole, fresh and possible; else the node is named with the reason."""

from dataclasses import replace

import pytest

from agents import fetch as fetch_module
from agents import telemetry
from agents.device import Device
from agents.errors import AgentError
from agents.fetch import FetchError, fetch
from agents.nodes import Node
from agents.telemetry import NodeTelemetry, TelemetryError
from tenancy.ledger import Pool
from tests.agents.cluster import LABELS, T4, Served
from tests.agents.exporters import add_exporter, card, gauge, measured

CARD = Device(gpu=0, uuid="GPU-1", total_bytes=1000, used_bytes=600, free_bytes=400)
NODES = (Node(name="k8s-node1", labels=LABELS), Node(name="elsewhere"))


def served_text(*cards: Device, age_seconds: float = 0) -> str:
    """What an exporter with these devices answers."""
    return gauge(*cards, age_seconds=age_seconds).metrics()[1]


def read(served: Served, answer: str | FetchError, pool: Pool = T4) -> tuple[list[str], NodeTelemetry]:
    asked: list[str] = []

    def get(url: str) -> bytes:
        asked.append(url)
        if isinstance(answer, FetchError):
            raise answer
        return answer.encode()

    (found,) = telemetry.read(served.api(), [pool], NODES, namespace="nodes", port=9401, get=get)
    return asked, found


def test_each_node_of_a_memory_pool_is_asked_at_its_own_exporter(served: Served) -> None:
    add_exporter(served)
    asked, found = read(served, served_text(CARD))
    assert asked == ["http://10.0.0.9:9401/metrics"]
    assert found == NodeTelemetry(pool=T4, node="k8s-node1", devices=(CARD,))


def test_an_ipv6_address_is_bracketed(served: Served) -> None:
    add_exporter(served, ip="fd00::9")
    assert read(served, served_text(CARD))[0] == ["http://[fd00::9]:9401/metrics"]


@pytest.mark.parametrize(
    ("exporters", "count"),
    [((), 0), (({"phase": "Pending"},), 0), (({"podIP": ""},), 0), (({}, {"podIP": "10.0.0.8"}), 2)],
)
def test_other_than_one_running_exporter_is_no_telemetry(
    served: Served, exporters: tuple[dict[str, str], ...], count: int
) -> None:
    for status in exporters:
        add_exporter(served, **status)
    asked, found = read(served, served_text(CARD))
    assert asked == []
    assert found.problem == f"{count} exporters run there, one is needed"


def test_an_exporter_that_is_going_is_not_asked(served: Served) -> None:
    add_exporter(served)
    served.cluster.pods[0]["metadata"]["deletionTimestamp"] = "2026-11-20T22:00:00Z"
    assert read(served, served_text(CARD))[1].problem == "0 exporters run there, one is needed"


def test_an_exporter_that_fails_is_no_telemetry(served: Served) -> None:
    add_exporter(served)
    assert read(served, FetchError("HTTP 503: GPU is lost"))[1].problem == "HTTP 503: GPU is lost"


def test_fewer_devices_than_declared_are_partial_telemetry(served: Served) -> None:
    add_exporter(served)
    problem = read(served, served_text(CARD), replace(T4, device_count=2))[1].problem
    assert problem == "1 devices are shown, pools.t4.device_count is 2"


def test_a_sample_may_be_thirty_seconds_old() -> None:
    assert telemetry.devices(served_text(CARD, age_seconds=30)) == (CARD,)
    with pytest.raises(TelemetryError, match="needed is one of at most 30 s"):
        telemetry.devices(served_text(CARD, age_seconds=30.1))


def without(text: str, part: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if part not in line)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "gpu_memory_sample_age_seconds is missing"),
        (without(served_text(CARD), "sample_age"), "gpu_memory_sample_age_seconds is missing"),
        (without(served_text(CARD), "free_bytes"), "partial"),
        (without(served_text(CARD), "gpu_device"), "partial"),
        (served_text(CARD).replace("600", "601"), "more than the device has"),
        (served_text(CARD).replace(" 400", " NaN"), "impossible series"),
        (served_text(CARD).replace(" 400", " -1"), "impossible series"),
        (served_text(CARD).replace('gpu="0"', 'gpu="x"'), "impossible series"),
        (served_text(CARD, CARD), "impossible series"),
        (served_text(CARD, replace(CARD, uuid="GPU-2")), "two devices have one index"),
        (served_text(CARD)[:-1], "breaks off"),
        ("<html>404</html>\n", "no sample"),
    ],
)
def test_what_is_missing_partial_or_impossible_is_refused(text: str, words: str) -> None:
    with pytest.raises(AgentError, match=words):
        telemetry.devices(text)


def test_series_that_are_none_of_ours_are_passed_over() -> None:
    assert telemetry.devices(f'{served_text(CARD)}gpu_pod_memory_used_bytes{{pod="a"}} 5\n') == (CARD,)


def test_an_exporter_is_asked_over_http(served: Served) -> None:
    with measured(served, card(1024)):
        (found,) = telemetry.read(served.api(), [T4], NODES, namespace="nodes", port=served.exporter_port)
    assert found.devices == (card(1024),)


def test_an_error_carries_the_exporters_words(served: Served) -> None:
    with measured(served), pytest.raises(FetchError, match="HTTP 404: there are /metrics and /healthz"):
        fetch(f"http://127.0.0.1:{served.exporter_port}/nothing")


def test_an_answer_over_the_limit_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "LIMIT_BYTES", 2)
    with measured(served), pytest.raises(FetchError, match="over 2 bytes"):
        fetch(f"http://127.0.0.1:{served.exporter_port}/healthz")
