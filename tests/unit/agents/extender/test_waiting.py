"""Tests that kube-scheduler retries refused pods when memory becomes free, and which pods wait for a seat's memory."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agents.extender.cache.cache import Cache
from agents.extender.cache.node_info import Shortage
from agents.extender.cache.pod_info import Entitlement
from agents.extender.cache.reading import UndeclaredUse
from agents.extender.waiting import GRACE_SECONDS, WaitingPod, WaitingPods, crowded
from tenancy.devices.allocate import MemoryRequest
from tenancy.ledger import Ledger
from tests.support.devices import bound, inventory, nominee
from tests.support.fake_cluster import DOMAIN, T4, Served

NODE = inventory("a", 8000)


@dataclass
class Held:
    served: Served
    cache: Cache = field(default_factory=Cache)
    events: int = 0
    serves: bool = False
    ledger: Ledger | None = None

    def __post_init__(self) -> None:
        self.cache.update_node(NODE)
        self.cache.update_pod(bound("first", "a", 8000, 0))
        self.waiting = WaitingPods(
            cache=self.cache,
            ledger=lambda: self.ledger,
            nudge=self.nudge,
            serves=lambda: self.serves,
            clock=self.served.time.clock(),
            log=self.served.log(),
        )
        self.refuse("second")

    def refuse(self, uid: str, **fields: Any) -> None:
        pod = WaitingPod(memory=MemoryRequest(5000), ledger=self.ledger, nodes=("a",), **fields)
        self.waiting.remember(uid, pod)

    def nudge(self) -> None:
        self.events += 1

    def look_after(self, seconds: float) -> bool:
        self.served.time.seconds += seconds
        return self.waiting.look()


@pytest.fixture
def held(served: Served) -> Held:
    return Held(served)


def test_whom_another_process_refused_is_retried_when_this_one_begins_to_answer(held: Held) -> None:
    for _ in range(2):
        held.serves = True
        assert [held.look_after(5), held.look_after(5)] == [True, False]
        held.serves = False
        assert not held.look_after(5)
    assert held.events == 2


def test_a_release_after_a_refusal_makes_one_event(held: Held) -> None:
    assert not held.look_after(10)
    held.cache.remove_pod("first")
    assert held.look_after(GRACE_SECONDS + 0.1)
    assert not held.look_after(10)
    assert held.events == 1


def test_a_new_ledger_makes_one_event_for_who_was_refused_by_the_old_ledger(held: Held) -> None:
    """Before the fix, a pod with a new seat waited for kube-scheduler's own retry, for up to 5 minutes."""
    held.ledger = Ledger(domain="example.com", pools=())
    assert held.look_after(10)
    assert not held.look_after(10)
    held.refuse("second")
    assert not held.look_after(10)
    assert held.events == 1


def test_the_scheduler_has_time_to_try_by_itself(held: Held) -> None:
    held.cache.remove_pod("first")
    assert not held.look_after(GRACE_SECONDS - 0.1)


SEATED = Entitlement(pools=frozenset({"t4"}))


def test_a_seat_that_is_held_back_is_retried_once_it_could_load_also_under_the_floor(held: Held) -> None:
    """The filter accepts a seat's pod even if the device then falls below its floor."""
    held.cache.update_node(replace(NODE, floor_mib=1536))
    held.cache.remove_pod("first")
    held.cache.measure("a", {0: 4900}, 0.0)
    held.refuse("second", entitlement=SEATED, held_until=60.0)
    assert not held.look_after(5)
    held.cache.measure("a", {0: 6456}, 5.0)
    assert held.look_after(5)


def test_a_seat_that_the_ledger_has_room_for_is_retried_so_that_its_hold_begins(held: Held) -> None:
    """When a pod ends, its memory is free by the ledger before NVML reports it as free."""
    held.refuse("second", entitlement=SEATED)
    held.cache.measure("a", {0: 0}, 0.0)
    held.cache.remove_pod("first")
    assert held.look_after(10)
    held.refuse("second", entitlement=SEATED, held_until=60.0)
    assert not held.look_after(10)


def test_a_nominee_is_retried_for_the_room_that_is_kept_for_it(held: Held) -> None:
    held.cache.nominate(nominee("second", "a", MemoryRequest(5000), 9), 0.0)
    held.cache.remove_pod("first")
    assert held.look_after(10)
    held.waiting.remember("second", WaitingPod(memory=MemoryRequest(5000)))
    held.refuse("third")
    assert not held.look_after(10)


OVER = UndeclaredUse("team", "runaway", 2000)
LACKS_MEMORY = Shortage(node="N", pool="t4", index=0, mib=3000, floor_mib=1536)
LACKS_THE_FLOOR = Shortage(node="N", pool="t4", index=0, mib=1536, floor_mib=1536)
SOMEBODY_IS_OVER = Shortage(node="N", pool="t4", index=0, mib=100, floor_mib=1536, holders=(OVER,))


@pytest.mark.parametrize(
    ("shortage", "held"), [(LACKS_MEMORY, True), (SOMEBODY_IS_OVER, True), (LACKS_THE_FLOOR, False)]
)
def test_a_seat_is_held_back_only_where_it_cannot_load_or_somebody_is_over(shortage: Shortage, held: bool) -> None:
    assert crowded((shortage,)) == held


def test_seats_that_are_held_back_are_counted_by_pool(held: Held) -> None:
    held.ledger = Ledger(domain=DOMAIN, pools=(T4, replace(T4, name="a100")))
    assert held.waiting.held_by_pool() == {"t4": 0, "a100": 0}
    for uid in ("second", "third"):
        held.refuse(uid, held_until=60.0, short=(LACKS_MEMORY,))
    assert held.waiting.held_by_pool() == {"t4": 2, "a100": 0}
    held.waiting.remember("third", WaitingPod(memory=MemoryRequest(5000)))
    assert held.waiting.held_by_pool() == {"t4": 1, "a100": 0}
    held.served.time.seconds += 60
    assert held.waiting.held_by_pool() == {"t4": 0, "a100": 0}
