"""Tests that the exporters' readings change the free memory in the cache."""

from contextlib import suppress
from dataclasses import replace

import pytest

from agents.extender.cache.cache import MEASURED_SECONDS, Cache
from agents.extender.cache.measured import ReadingRefresher
from agents.runtime.errors import AgentError
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.reading import LostDevice, Trouble
from tenancy.devices.allocate import MemoryRequest
from tests.support.devices import feasible, inventory
from tests.support.exporters import card
from tests.support.fake_cluster import T4, Served

NODE = inventory("N", 14000)


class Bench:
    def __init__(self, served: Served) -> None:
        self.time, self.lines = served.time, served.lines
        self.answers: list[list[NodeTelemetry] | AgentError | None] = []
        self.growths = 0
        self.cache = Cache()
        self.cache.update_node(NODE)
        self.measured = ReadingRefresher(
            read=self.read, cache=self.cache, grown=self.grow, clock=served.time.clock(), log=served.log()
        )

    def read(self) -> list[NodeTelemetry] | None:
        if not self.answers:
            raise KeyboardInterrupt  # this ends `keep`
        answer = self.answers.pop(0)
        if isinstance(answer, AgentError):
            raise answer
        return answer

    def grow(self) -> None:
        self.growths += 1

    def refresh(self, *answers: NodeTelemetry) -> None:
        self.answers.append([*answers])
        self.measured.refresh()

    def keep(self, *answers: list[NodeTelemetry] | AgentError | None) -> None:
        self.answers += answers
        with suppress(KeyboardInterrupt):
            self.measured.keep()

    @property
    def room_mib(self) -> int:
        (usage,) = self.cache.snapshot()
        return usage.devices[0].room_mib


@pytest.fixture
def bench(served: Served) -> Bench:
    return Bench(served)


def shown(free_mib: int, *, node: str = "N", at: float = 0.0) -> NodeTelemetry:
    return NodeTelemetry(pool=T4, node=node, devices=(card(free_mib),), read_at=at)


def blind(problem: str = "0 exporters run there, one is needed", node: str = "N") -> NodeTelemetry:
    return NodeTelemetry(pool=T4, node=node, trouble=Trouble.MISSING, problem=problem)


def test_a_device_that_is_used_has_no_more_to_give_than_is_free(bench: Bench) -> None:
    bench.refresh(shown(5000))
    assert bench.room_mib == 5000
    assert bench.growths == 1


def test_without_an_answer_of_the_nodes_exporter_the_last_one_counts_until_it_is_old(bench: Bench) -> None:
    bench.refresh(shown(5000, at=0.0))
    bench.refresh(blind())
    assert feasible(bench.cache, MemoryRequest(6000), MEASURED_SECONDS - 1) == frozenset()
    assert feasible(bench.cache, MemoryRequest(6000), MEASURED_SECONDS) == {"N"}


def test_a_device_that_is_lost_is_placed_on_by_the_ledger_and_the_others_as_measured(bench: Bench) -> None:
    bench.cache.update_node(inventory("N", 14000, 14000))
    lost = LostDevice(gpu=1, trouble=Trouble.PARTIAL, problem="NVML cannot read it")
    bench.refresh(replace(shown(5000), lost=(lost,), trouble=Trouble.PARTIAL, problem=str(lost)))
    assert [device.room_mib for usage in bench.cache.snapshot() for device in usage.devices] == [5000, 14000]
    assert [line["message"] for line in bench.lines()] == [
        "is placed by the ledger alone: N: gpu 1: NVML cannot read it"
    ]


def test_nothing_counts_as_tried_before_it_is_known_whom_to_ask(bench: Bench) -> None:
    bench.keep(None, None)
    assert not bench.measured.tried
    bench.keep([shown(5000)])
    assert bench.measured.tried
    assert bench.time.slept == [0.2, 0.2, 5.0]


def test_an_api_that_does_not_answer_is_logged_once_and_asked_again(bench: Bench) -> None:
    """If the extender cannot find the exporters, it places pods by the ledger."""
    away = AgentError("the API is away")
    bench.keep(away, away, away, [shown(5000)])
    assert bench.measured.tried
    assert bench.room_mib == 5000
    assert [line["message"] for line in bench.lines()] == [
        "the devices are not measured: the API is away",
        "the devices are measured again",
    ]
