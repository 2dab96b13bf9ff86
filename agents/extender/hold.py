"""Delays a seat's pod for a limited time, the hold, so that other pods can first release their overshoot.

If a seat's memory is free by the ledger, the extender places the seat's pod at the latest when the hold ends. While
other pods use the seat's memory, the seat's pod cannot allocate its budget. During the hold, the gate stops workloads
and the watchdog recycles pods.

The extender does not hold the pod back if a node has a shortage of at most the floor and no pod over its budget. On a
node with a small shortage and no pod over its budget, a delay would not free memory.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from agents.extender.cache.node_info import Shortage, UndeclaredUse
from agents.kube.pods import Pod
from agents.runtime.clock import Clock
from agents.runtime.items import Unjudged, judged
from tenancy.ledger import Ledger

# The scheduler retries each pod within 5 minutes. A pod without a retry for this many seconds has ended or no longer
# fits.
_GONE_SECONDS = 600.0


@dataclass(frozen=True)
class HeldSeat:
    """A seat with a pod that the extender delays. Times are in monotonic seconds."""

    since: float
    until: float
    tried_at: float
    pool: str


@dataclass(kw_only=True)
class SeatHolds:
    """The seats with pods that the extender delays. Any thread may call the methods. `led_since` returns the time in
    monotonic seconds when this process became the leader, or None.
    """

    seconds: float
    led_since: Callable[[], float | None]
    clock: Clock
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _held: dict[str, HeldSeat] = field(default_factory=dict)

    def hold(self, pod: Pod, short: tuple[Shortage, ...], server_now: datetime) -> HeldSeat | None:
        """Returns the hold on the seat, or None if the extender must place the seat's pod now.

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
            # The entry stays after the end of the hold, because the extender delays each pod only once.
            self._held[pod.uid] = held
            return held if now < held.until else None

    def release(self, uid: str) -> None:
        """Ends the hold on a seat after its pod has been placed."""
        with self._lock:
            if uid in self._held:
                self._held[uid] = replace(self._held[uid], until=self._held[uid].since)

    def by_pool(self, pools: Iterable[str]) -> dict[str, int]:
        """Returns, for each pool, the number of seats with a delayed pod."""
        now = self.clock.monotonic()
        with self._lock:
            counts = Counter(each.pool for each in self._held.values() if now < each.until)
        return {pool: counts[pool] for pool in {*pools, *counts}}

    def _began(self, pod: Pod, now: float, server_now: datetime) -> float:
        """Returns the time when the hold on the pod began.

        For a pod from before this leadership, the hold begins at the pod's creation, because an earlier leader may have
        begun it. A restart of the extender therefore never prolongs a hold. The pod may be placed before the full time
        of the hold.
        """
        created = judged(lambda: pod.created)
        if isinstance(created, Unjudged):
            return now
        age = max((server_now - created).total_seconds(), 0.0)
        led = self.led_since()
        return now if led is not None and now - age >= led else now - age


def crowded(short: Iterable[Shortage]) -> bool:
    """Returns True if every node is crowded. A crowded node has a shortage above its floor, or a pod over its budget.
    On an uncrowded node, the seat's pod can allocate its whole budget. After the allocation, a device of this node is
    below its floor.
    """
    by_node: dict[str, bool] = {}
    for each in short:
        by_node[each.node] = by_node.get(each.node, False) or each.mib > each.floor_mib or bool(each.holders)
    return bool(by_node) and all(by_node.values())


def reclaimable(short: Iterable[Shortage], ledger: Ledger | None) -> tuple[Shortage, ...]:
    """Returns the shortages.

    `holders` leaves out each unbudgeted pod that uses at most the memory in its workload's ledger entry.
    """
    if ledger is None:
        return tuple(short)
    # A pod does not name its entry in the ledger, so the largest entry of its tenant applies.
    by_size = sorted(ledger.unbudgeted, key=lambda each: each.measured_mib)
    recorded = {(each.tenant, each.pool): each.measured_mib for each in by_size}

    def over(shortage: Shortage, holder: UndeclaredUse) -> bool:
        return holder.mib > recorded.get((holder.namespace, shortage.pool), 0)

    return tuple(replace(each, holders=tuple(h for h in each.holders if over(each, h))) for each in short)
