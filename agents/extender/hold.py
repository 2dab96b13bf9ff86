"""Holds a seat back for a limited time, while other pods free the memory that they use beyond their budgets.

The extender always places a pod within its seat if the seat's memory is free by the ledger. While other pods use this
memory, the pod cannot allocate its budget. The gate then stops workloads, and the watchdog recycles pods. The extender
holds the seat back for some seconds during this time, and then places the pod anyway. The extender places the seat at
once if its shortage is at most the floor and all pods are within their budgets. Waiting would then not free memory.
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

# The scheduler retries each pod within 5 minutes. After this time without a retry, the seat's pod has ended or no
# longer fits.
_GONE_SECONDS = 600.0


@dataclass(frozen=True)
class HeldSeat:
    """A seat that is held back. Times are in monotonic seconds."""

    since: float
    until: float
    tried_at: float
    pool: str


@dataclass(kw_only=True)
class SeatHolds:
    """The seats that are held back. Any thread may call the methods. `led_since` returns the start of this process'
    leadership in monotonic seconds, or None.
    """

    seconds: float
    led_since: Callable[[], float | None]
    clock: Clock
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _held: dict[str, HeldSeat] = field(default_factory=dict)

    def hold(self, pod: Pod, short: tuple[Shortage, ...], server_now: datetime) -> HeldSeat | None:
        """Returns the held seat, or None if the seat must be placed now.

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
            self._held[pod.uid] = held  # stays after the hold has ended, because a seat is held back only once
            return held if now < held.until else None

    def release(self, uid: str) -> None:
        """Ends the hold on a seat after its pod was placed."""
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
        """Returns the time when the hold on the pod began.

        An earlier leader may already have held back a pod that is older than this leadership. For such a pod, the hold
        begins at the pod's creation, so that restarts never prolong the hold. The pod may then be placed too early.
        """
        created = pod.metadata.get("creationTimestamp")
        if not created:
            return now
        age = max((server_now - pod.created).total_seconds(), 0.0)
        led = self.led_since()
        return now if led is not None and now - age >= led else now - age


def crowded(short: Iterable[Shortage]) -> bool:
    """Returns True if all nodes are crowded.

    On a crowded node, the shortage exceeds the floor or a pod is over its budget. On any other node, the seat's pod can
    allocate its whole budget, and the device is then below its floor.
    """
    by_node: dict[str, bool] = {}
    for each in short:
        by_node[each.node] = by_node.get(each.node, False) or each.mib > each.floor_mib or bool(each.holders)
    return bool(by_node) and all(by_node.values())


def reclaimable(short: Iterable[Shortage], ledger: Ledger | None) -> tuple[Shortage, ...]:
    """Returns the shortages.

    In the result, `holders` has no pods of unbudgeted workloads that stay within their use in the ledger.
    """
    if ledger is None:
        return tuple(short)
    # A pod does not show its entry in the ledger, so the largest entry of its tenant counts.
    by_size = sorted(ledger.unbudgeted, key=lambda each: each.measured_mib)
    recorded = {(each.tenant, each.pool): each.measured_mib for each in by_size}

    def over(shortage: Shortage, holder: UndeclaredUse) -> bool:
        return holder.mib > recorded.get((holder.namespace, shortage.pool), 0)

    return tuple(replace(each, holders=tuple(h for h in each.holders if over(each, h))) for each in short)
