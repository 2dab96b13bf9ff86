"""Holds seats back for a bounded time, while other pods give back memory beyond their budgets.

A pod within its seat is placed whenever the ledger has free memory. A reading never refuses such a pod. If the seat's
pod could not load now, gates close and the watchdog recycles. Meanwhile the seat is held back for some seconds, and
then placed anyway. If the pod could load below the floor and no pod is over a budget, the seat is placed at once. A
wait would change nothing.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from agents.extender.cache.node_info import Shortage, UndeclaredUse
from agents.kube.pods import Pod
from agents.runtime.clock import Clock
from tenancy.ledger import Ledger

# The scheduler tries each pod within 5 minutes. A seat without a try for longer has ended, or does not fit.
_GONE_SECONDS = 600.0


@dataclass(frozen=True)
class HeldSeat:
    """The hold on one seat; times in monotonic seconds."""

    since: float
    until: float
    tried_at: float
    pool: str


@dataclass(kw_only=True)
class SeatHolds:
    """The holds on all seats, for any thread. `led_since` returns the monotonic time since which this process leads."""

    seconds: float
    led_since: Callable[[], float | None]
    clock: Clock
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _held: dict[str, HeldSeat] = field(default_factory=dict)

    def hold(self, pod: Pod, short: tuple[Shortage, ...], server_now: datetime) -> HeldSeat | None:
        """Returns the hold on a seat with these shortages, or None if the seat is to be placed now.

        `server_now` is the API server's time of day.
        """
        now = self.clock.monotonic()
        with self._lock:
            self._held = {uid: each for uid, each in self._held.items() if now - each.tried_at < _GONE_SECONDS}
            if not crowded(short):
                return None
            known = self._held.get(pod.uid)
            since = self._began(pod, now, server_now) if known is None else known.since
            held = HeldSeat(since, since + self.seconds, now, short[0].pool)
            self._held[pod.uid] = held  # an ended hold is kept too, because a seat is held back only once
            return held if now < held.until else None

    def release(self, uid: str) -> None:
        """Ends the hold on a seat that is placed."""
        with self._lock:
            if uid in self._held:
                self._held[uid] = replace(self._held[uid], until=self._held[uid].since)

    def by_pool(self, pools: Iterable[str]) -> dict[str, int]:
        """Returns the number of seats held back now, by pool."""
        now = self.clock.monotonic()
        with self._lock:
            counts = Counter(each.pool for each in self._held.values() if now < each.until)
        return {pool: counts[pool] for pool in {*pools, *counts}}

    def _began(self, pod: Pod, now: float, server_now: datetime) -> float:
        """Returns the start of the hold: now, unless an earlier leader may have held the pod back.

        A pod that is older than this leadership may have been held back before, for an unknown time. Its hold counts
        from its creation, so that restarts never prolong it. At worst such a seat is placed too early.
        """
        created = pod.metadata.get("creationTimestamp")
        if not created:
            return now
        age = max((server_now - pod.created).total_seconds(), 0.0)
        led = self.led_since()
        return now if led is not None and now - age >= led else now - age


def crowded(short: Iterable[Shortage]) -> bool:
    """Returns True if each node lacks memory for the seat, or has a pod over its budget that should give memory back.

    A node where the seat would load below the floor, with all pods within their budgets, is not crowded.
    """
    by_node: dict[str, bool] = {}
    for each in short:
        by_node[each.node] = by_node.get(each.node, False) or each.mib > each.floor_mib or bool(each.holders)
    return bool(by_node) and all(by_node.values())


def reclaimable(short: Iterable[Shortage], ledger: Ledger | None) -> tuple[Shortage, ...]:
    """Removes from the shortages the holders on record that keep within their recorded use."""
    if ledger is None:
        return tuple(short)
    # Of a tenant's records the largest counts, because a pod does not show its own record.
    by_size = sorted(ledger.unbudgeted, key=lambda each: each.measured_mib)
    recorded = {(each.tenant, each.pool): each.measured_mib for each in by_size}

    def over(shortage: Shortage, holder: UndeclaredUse) -> bool:
        return holder.mib > recorded.get((holder.namespace, shortage.pool), 0)

    return tuple(replace(each, holders=tuple(h for h in each.holders if over(each, h))) for each in short)
