"""Tests that the client scrapes the exporter of each node, and gives a reason for a missing reading."""

import threading
from dataclasses import replace

import pytest

from agents.kube.nodes import Node
from agents.runtime.http_client import FetchError
from agents.telemetry import client
from agents.telemetry.client import NodeTelemetry, Scraper, list_exporters
from agents.telemetry.device import Device
from agents.telemetry.reading import Trouble
from tenancy.ledger import Ledger, Pool
from tests.support.exporters import add_exporter, card, device_reader
from tests.support.fake_cluster import DOMAIN, LABELS, NAMES, T4, Served
from tests.support.waiting import PATIENCE_SECONDS

CARD = Device(gpu=0, uuid="GPU-1", total_bytes=1000, used_bytes=600, free_bytes=400)
NODES = (Node(name="k8s-node1", labels=LABELS), Node(name="elsewhere"))


def ledger(*pools: Pool) -> Ledger:
    return Ledger(domain=DOMAIN, pools=pools)


def served_text(*cards: Device, age_seconds: float = 0) -> str:
    return device_reader(*cards, age_seconds=age_seconds).metrics()[1]


def read(served: Served, answer: str | FetchError, pool: Pool = T4) -> tuple[list[str], NodeTelemetry]:
    asked: list[str] = []

    def get(url: str) -> bytes:
        asked.append(url)
        if isinstance(answer, FetchError):
            raise answer
        return answer.encode()

    (found,) = client.read(
        list_exporters(served.api(), "nodes"),
        ledger(pool),
        NODES,
        port=9401,
        scraper=Scraper(page=get),
        monotonic=lambda: 100.0,
    )
    return asked, found


def test_each_node_of_a_memory_pool_is_asked_at_its_own_exporter(served: Served) -> None:
    add_exporter(served)
    asked, found = read(served, served_text(CARD, age_seconds=7))
    assert asked == ["http://10.0.0.9:9401/metrics"]
    assert (found.pool, found.node, found.devices, found.problem) == (T4, "k8s-node1", (CARD,), None)
    assert (found.age_seconds, found.read_at) == (7, 93)


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
    add_exporter(served, ip="10.0.0.7")
    served.cluster.pods[-1]["metadata"]["deletionTimestamp"] = "2026-11-20T22:00:00Z"
    assert read(served, served_text(CARD))[1].problem == found.problem, "one that terminates does not count"


def test_fewer_devices_than_declared_are_partial_telemetry_and_those_that_are_shown_are_known(served: Served) -> None:
    add_exporter(served)
    found = read(served, served_text(CARD), replace(T4, device_count=2))[1]
    assert found.devices == (CARD,)
    assert (found.trouble, found.problem) == (
        Trouble.PARTIAL,
        "1 devices are shown, pools.t4.device_count is 2",
    )


@pytest.mark.parametrize(("text", "offered_mib"), [("", 14000), ("1,GPU-1", 14000), ("GPU-0", 0), ("0", 0), ("all", 0)])
def test_a_device_that_is_to_take_no_new_pod_is_measured_and_offers_nothing(
    served: Served, text: str, offered_mib: int
) -> None:
    add_exporter(served)
    node = replace(NODES[0], annotations={NAMES.device_excluded: text})
    big = card(15000)
    (found,) = client.read(
        list_exporters(served.api(), "nodes"),
        ledger(T4),
        (node,),
        port=9401,
        scraper=Scraper(page=lambda _: served_text(big).encode()),
    )
    assert (found.devices, found.problem, found.offered_mib(big)) == ((big,), None, offered_mib)


def test_an_exporter_that_does_not_answer_makes_no_other_reading_older(served: Served) -> None:
    """The silent exporter answers after the client has taken the reading of the other."""
    now, taken = 100.0, threading.Event()
    nodes = [replace(NODES[0], name=name) for name in ("silent", "other")]
    for number, node in enumerate(nodes):
        add_exporter(served, node=node.name, ip=f"10.0.0.{number}")

    def get(url: str) -> bytes:
        nonlocal now
        if url == "http://10.0.0.1:9401/metrics":
            return served_text(CARD).encode()
        taken.wait(PATIENCE_SECONDS)
        now += 1.9
        raise FetchError("timed out")

    def monotonic() -> float:
        taken.set()
        return now

    silent, other = client.read(
        list_exporters(served.api(), "nodes"),
        ledger(T4),
        nodes,
        port=9401,
        scraper=Scraper(page=get),
        monotonic=monotonic,
    )
    assert (silent.trouble, silent.problem) == (Trouble.MISSING, "timed out")
    assert (other.problem, other.read_at) == (None, 100)
