"""Tests the extender's handlers for the scheduler's verbs, metrics and health."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from agents.extender.bind import Binder, ClientPool
from agents.extender.cache.cache import Cache
from agents.extender.cache.informers import Informers
from agents.extender.cache.inventory import NodeDevice, NodeDevices
from agents.extender.filter import PlacementVerbs
from agents.extender.handlers import Readiness, StatusHandler, VerbHandler
from agents.extender.metrics import ExtenderMetrics
from agents.kube.events import Event
from agents.runtime import exposition
from agents.runtime.http_message import HttpRequest
from tenancy import names
from tenancy.ledger import Ledger, Seat
from tests.support.devices import inventory
from tests.support.fake_cluster import DOMAIN, NAMES, SYSTEM, T4, Served
from tests.support.preempting import waiting_pods

NODE = NodeDevices(node="a", pool="t4", devices=(NodeDevice(0, "GPU-0", 8000),))


@dataclass
class Led:
    since: float | None = 0.0


class Handlers:
    def __init__(self, served: Served) -> None:
        clock, log = served.time.clock(), served.log()
        self.time, self.lines = served.time, served.lines
        self.cache = Cache()
        self.cache.update_node(NODE)
        self.informers = Informers(api=served.api(), cache=self.cache, ledger_namespace=SYSTEM, clock=clock, log=log)
        self.informers.problem, self.informers.listed_at = None, 0.0
        self.informers.ledger = Ledger(domain=DOMAIN, pools=(T4,))
        self.led = Led()
        self.measured = True
        self.readiness = Readiness(
            informers=self.informers, led_since=lambda: self.led.since, measured=lambda: self.measured
        )
        self.events: list[Event] = []
        self.waiting = waiting_pods(served, self.cache)
        self.waiting.ledger = lambda: self.informers.ledger
        placing = PlacementVerbs(
            informers=self.informers, cache=self.cache, waiting=self.waiting, hold_seconds=60,
            led_since=lambda: self.led.since, tell=self.events.append, clock=clock,
        )  # fmt: skip
        binder = Binder(
            connections=ClientPool(served.api, clock), cache=self.cache, waiting=self.waiting,
            clock=clock,
        )  # fmt: skip
        self.verbs = VerbHandler(self.readiness, placing, binder, log)
        series = ExtenderMetrics(
            readiness=self.readiness, verbs=self.verbs, cache=self.cache, drift=dict, ages=dict,
            waiting=self.waiting,
        )  # fmt: skip
        self.open = StatusHandler(readiness=self.readiness, families=series.families, monotonic=clock.monotonic)

    def post(self, verb: str, **arguments: Any) -> tuple[int, Any]:
        answer = self.verbs.answer(HttpRequest("POST", f"/{verb}", json.dumps(arguments).encode()))
        return answer.status, json.loads(answer.body) if answer.kind == "application/json" else answer.body.decode()

    def filter(self, mib: int, uid: str = "u") -> tuple[int, Any]:
        return self.post("filter", Pod=pod(mib, uid), NodeNames=["a", "b"])

    def get(self, path: str) -> tuple[int, str]:
        answer = self.open.answer(HttpRequest("GET", path))
        return answer.status, answer.body.decode()

    def value(self, name: str, **labels: str) -> float | None:
        samples = exposition.parse(self.get("/metrics")[1])
        return next((s.value for s in samples if s.name == name and labels.items() <= s.labels.items()), None)


def pod(mib: int, uid: str) -> dict[str, Any]:
    spec = {"containers": [{"resources": {"limits": {NAMES.gpumem: str(mib)}}}]}
    return {"metadata": {"uid": uid, "namespace": "n"}, "spec": spec}


@pytest.fixture
def handlers(served: Served) -> Handlers:
    return Handlers(served)


def close(handlers: Handlers, how: str) -> None:
    match how:
        case "another leads":
            handlers.led.since = None
        case "the lists are older than the leadership":
            handlers.led.since = 5.0
        case "no ledger":
            handlers.informers.problem = "there is no ledger"
        case "nothing was listed":
            handlers.informers.listed_at = None
        case "nothing was measured":
            handlers.measured = False


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("another leads", "is not the leader"),
        ("the lists are older than the leadership", "are being relisted"),
        ("no ledger", "there is no ledger"),
        ("nothing was listed", "is being listed"),
        ("nothing was measured", "are being measured"),
    ],
)
def test_when_in_doubt_no_verb_is_answered(handlers: Handlers, how: str, message: str) -> None:
    close(handlers, how)
    for verb in ("filter", "bind"):
        status, result = handlers.post(verb)
        assert (status, [*result]) == (200, ["Error"])
        assert message in result["Error"]
    status, text = handlers.post("preempt")
    assert status == 503
    assert message in text
    assert handlers.value(names.METRIC_EXTENDER_REFUSALS, reason="not_ready") == 3


def test_it_is_ready_without_leading(handlers: Handlers) -> None:
    """A Deployment's rollout waits until the new pod is ready."""
    close(handlers, "another leads")
    assert handlers.get("/readyz") == (200, "ok\n")
    assert handlers.value(names.METRIC_EXTENDER_LEADING) == 0


def test_what_everybody_may_read_names_no_pod(handlers: Handlers) -> None:
    handlers.filter(5000)
    series = exposition.parse(handlers.open.answer(HttpRequest("GET", "/metrics")).body.decode())
    assert not {"namespace", "pod", "pod_uid", "uid", "tenant"} & {label for each in series for label in each.labels}


def test_a_seat_that_is_held_back_and_then_placed_on_used_memory_is_counted_and_reported(handlers: Handlers) -> None:
    ledger = Ledger(domain=DOMAIN, pools=(T4,), seats=(Seat(name="s", tenant="team", pool="t4", gpumem_mib=5000),))
    handlers.informers.ledger = ledger
    handlers.time.seconds = 100.0
    asking = pod(5000, "u")
    asking["metadata"] |= {"namespace": "team", "name": "model"}
    for second, held in ((100.0, 1), (160.0, 0)):
        handlers.time.seconds = second
        handlers.cache.measure("a", {0: 1000}, second)
        handlers.post("filter", Pod=asking, NodeNames=["a"])
        assert handlers.value(names.METRIC_EXTENDER_HELD_SEATS, pool="t4") == held
        assert handlers.value(names.METRIC_EXTENDER_OVERCROWDED, pool="t4") == 0
    assert handlers.value(names.METRIC_EXTENDER_REFUSALS, reason="held") == 1
    handlers.post("bind", PodName="model", PodNamespace="team", PodUID="u", Node="a")
    assert handlers.value(names.METRIC_EXTENDER_OVERCROWDED, pool="t4") == 1
    assert [event.reason for event in handlers.events] == ["GpuSeatHeldBack", "GpuSeatOvercrowded"]


@pytest.mark.parametrize("verb", ["filter", "bind"])
def test_an_unexpected_error_of_one_request_is_in_its_answer(handlers: Handlers, verb: str) -> None:
    answer = handlers.verbs.answer(HttpRequest("POST", f"/{verb}", b"[" * 100_000))
    assert answer.status == 200
    assert json.loads(answer.body)["Error"].startswith("RecursionError: ")
    assert handlers.value(names.METRIC_EXTENDER_REFUSALS, reason=f"{verb}_failed") == 1
    assert handlers.filter(5000)[1]["NodeNames"] == ["a"]


def test_one_event_of_a_placement_says_why_and_names_the_second_best_device(handlers: Handlers) -> None:
    handlers.cache.update_node(inventory("b", 6200))
    handlers.filter(5000)
    handlers.post("bind", PodName="model", PodNamespace="n", PodUID="u", Node="b")
    (event,) = handlers.events
    assert (event.reason, event.warning) == ("GpuPlaced", False)
    assert event.note == (
        "gets 5000 MiB of b device 0, where 6200 of 6200 MiB were free; next best was a device 0, which would leave "
        "3000 MiB, and not 1200 MiB"
    )
    assert [(line["message"], line["why"]) for line in handlers.lines() if "why" in line] == [("placed", event.note)]
