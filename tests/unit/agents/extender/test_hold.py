"""Tests that a seat's pod waits for a limited time if too little measured memory is free."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents.extender.cache.node_info import Shortage, UndeclaredUse
from agents.extender.hold import SeatHolds, reclaimable
from agents.kube.pods import Pod
from tenancy.ledger import Ledger, Unbudgeted
from tests.support.fake_cluster import DOMAIN, T4, Served

START = datetime(2026, 6, 2, 12, 0, tzinfo=UTC)
OVER = UndeclaredUse("team", "runaway", 2000)
LACKS_MEMORY = Shortage(node="N", pool="t4", index=0, mib=3000, floor_mib=1536)
LACKS_THE_FLOOR = Shortage(node="N", pool="t4", index=0, mib=1536, floor_mib=1536)
SOMEBODY_IS_OVER = Shortage(node="N", pool="t4", index=0, mib=100, floor_mib=1536, holders=(OVER,))


class Bench:
    def __init__(self, served: Served, seconds: float = 60) -> None:
        self.time = served.time
        self.clock = replace(served.time.clock(), now=lambda: START + timedelta(seconds=self.time.seconds))
        self.time.seconds = 100.0
        self.led: float | None = 0.0
        self.holds = SeatHolds(seconds=seconds, led_since=lambda: self.led, clock=self.clock)

    def pod(self, uid: str = "seat", age: float | None = 0.0) -> Pod:
        created: datetime | None = None if age is None else self.clock.now() - timedelta(seconds=age)
        metadata: dict[str, Any] = {"uid": uid, "creationTimestamp": created.isoformat() if created else None}
        return Pod({"metadata": metadata, "spec": {}})

    def left(self, pod: Pod, shortage: Shortage = LACKS_MEMORY) -> float | None:
        held = self.holds.hold(pod, (shortage,), self.clock.now())
        return None if held is None else held.until - self.clock.monotonic()


@pytest.fixture
def bench(served: Served) -> Bench:
    return Bench(served)


@pytest.mark.parametrize(
    ("shortage", "held"), [(LACKS_MEMORY, True), (SOMEBODY_IS_OVER, True), (LACKS_THE_FLOOR, False)]
)
def test_a_seat_is_held_back_only_where_it_cannot_load_or_somebody_is_over(
    bench: Bench, shortage: Shortage, held: bool
) -> None:
    assert (bench.left(bench.pod(), shortage) is not None) == held


def test_a_hold_counts_from_its_beginning_and_ends(bench: Bench) -> None:
    pod = bench.pod()
    assert bench.left(pod) == 60
    bench.time.seconds += 45
    assert bench.left(pod) == 15
    bench.time.seconds += 15
    assert bench.left(pod) is None
    bench.time.seconds += 100
    assert bench.left(pod) is None


def test_a_pod_older_than_the_leadership_may_have_been_held_back_by_another(bench: Bench) -> None:
    """A restart of the extender must not prolong the wait of a seat's pod."""
    bench.time.seconds = bench.led = 1000.0
    assert bench.left(bench.pod("young", age=20)) == 40
    assert bench.left(bench.pod("old", age=3600)) is None


def test_a_pod_made_under_this_leadership_has_the_whole_hold_however_long_it_waited_for_room(bench: Bench) -> None:
    bench.time.seconds = 4000.0
    assert bench.left(bench.pod(age=3600)) == 60


def test_seats_that_are_held_back_are_counted_by_pool(bench: Bench) -> None:
    assert bench.holds.by_pool(["t4", "a100"]) == {"t4": 0, "a100": 0}
    bench.left(bench.pod("one"))
    bench.left(bench.pod("two"))
    assert bench.holds.by_pool(["t4", "a100"]) == {"t4": 2, "a100": 0}
    bench.holds.release("one")
    assert bench.holds.by_pool(["t4"]) == {"t4": 1}
    bench.time.seconds += 60
    assert bench.holds.by_pool(["t4"]) == {"t4": 0}


def test_who_is_on_record_without_a_budget_is_waited_for_only_beyond_the_record() -> None:
    ledger = Ledger(
        domain=DOMAIN, pools=(T4,), unbudgeted=(Unbudgeted(name="e", tenant="team", pool="t4", measured_mib=2000),)
    )
    assert reclaimable((SOMEBODY_IS_OVER,), ledger)[0].holders == ()
    both = replace(ledger, unbudgeted=(*ledger.unbudgeted, replace(ledger.unbudgeted[0], name="f", measured_mib=100)))
    assert reclaimable((SOMEBODY_IS_OVER,), both)[0].holders == (), "nobody says which of the two it is"
    more = Shortage(node="N", pool="t4", index=0, mib=1, floor_mib=2, holders=(UndeclaredUse("team", "runaway", 2001),))
    assert reclaimable((more,), ledger)[0].holders == more.holders
