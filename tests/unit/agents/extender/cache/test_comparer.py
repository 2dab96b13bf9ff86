"""Tests how the extender compares its cache with the API server, and when it relists."""

from collections.abc import Iterable
from contextlib import suppress

import pytest

from agents.extender.cache.cache import Cache
from agents.extender.cache.comparer import INTERVAL_SECONDS, Comparer
from agents.extender.cache.pod_info import PodInfo
from agents.runtime.errors import AgentError
from tests.support.devices import bound, inventory
from tests.support.fake_cluster import Served

PLACED = bound("placed", "N", 5000, 0)


class Bench:
    def __init__(self, served: Served) -> None:
        self.time, self.lines = served.time, served.lines
        self.cache = Cache()
        self.cache.update_node(inventory("N", 8000))
        self.cache.update_pod(PLACED)
        self.listed: list[PodInfo] = [PLACED]
        self.failures = 0
        self.renewals = 0
        self.lost: list[PodInfo] = []
        self.audit = Comparer(
            bound=self.bound, renew=self.renew, lost=self.lost.append, cache=self.cache,
            clock=served.time.clock(), log=served.log(),
        )  # fmt: skip

    def bound(self) -> Iterable[PodInfo]:
        if self.failures:
            self.failures -= 1
            raise AgentError("the API is away")
        return self.listed

    def renew(self) -> None:
        self.renewals += 1

    def told(self) -> list[dict[str, object]]:
        return [{k: v for k, v in line.items() if k in ("missing", "stale", "over")} for line in self.lines()]


@pytest.fixture
def bench(served: Served) -> Bench:
    return Bench(served)


def test_a_difference_is_counted_at_its_first_comparison_and_reported_at_its_second(bench: Bench) -> None:
    bench.listed = [PLACED, bound("unknown", "N", 100, 0)]
    bench.audit.pass_once()
    assert bench.audit.counts()["missing"] == 1
    assert (bench.told(), bench.renewals) == ([], 0)
    bench.audit.pass_once()
    assert (bench.told(), bench.renewals) == ([{"missing": ["unknown"]}], 1)


def test_an_api_that_is_away_is_logged_once_and_the_last_audit_stays(bench: Bench) -> None:
    bench.audit.pass_once()
    bench.failures = 2

    def stop() -> None:
        if bench.time.seconds > 3 * INTERVAL_SECONDS:
            raise KeyboardInterrupt

    bench.time.meanwhile = stop
    with suppress(KeyboardInterrupt):
        bench.audit.keep()
    assert [line["message"] for line in bench.lines()] == [
        "the cache is not compared with the API: the API is away",
        "the cache is compared again",
    ]
    assert bench.audit.counts()["missing"] == 0
