"""How long a seat is held back while others give back memory that they use without a right to it.

A pod within its seat is placed whenever the ledger has its device's room; what is measured never refuses it. Where the
seat could not load now, gates close and the watchdog recycles: meanwhile it is held back, for so many seconds at most,
and then placed all the same. It is not held back for nothing: where it could load, though not above the floor, and
nobody is over a budget, there is nobody to wait for.
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

# A seat that the scheduler has not tried for so long is gone, or has no room: it tries each within 5 minutes.
_GONE_SECONDS = 600.0


@dataclass(frozen=True)
class HeldSeat:
    """Since when a seat is held back, until when, when it was last tried (monotonic seconds), and in which pool."""

    since: float
    until: float
    tried_at: float
    pool: str


@dataclass(kw_only=True)
class SeatHolds:
    """Any thread calls. `led_since` is when this process began to lead, monotonic seconds."""

    seconds: float
    led_since: Callable[[], float | None]
    clock: Clock
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _held: dict[str, HeldSeat] = field(default_factory=dict)

    def hold(self, pod: Pod, short: tuple[Shortage, ...], server_now: datetime) -> HeldSeat | None:
        """The hold on a seat with these shortages; None where it is to be placed now. `server_now` is the API server's
        time of day."""
        now = self.clock.monotonic()
        with self._lock:
            self._held = {uid: each for uid, each in self._held.items() if now - each.tried_at < _GONE_SECONDS}
            if not crowded(short):
                return None
            known = self._held.get(pod.uid)
            since = self._began(pod, now, server_now) if known is None else known.since
            held = HeldSeat(since, since + self.seconds, now, short[0].pool)
            self._held[pod.uid] = held  # also once it is over: the seat is held back once
            return held if now < held.until else None

    def release(self, uid: str) -> None:
        """A seat that is placed."""
        with self._lock:
            if uid in self._held:
                self._held[uid] = replace(self._held[uid], until=self._held[uid].since)

    def by_pool(self, pools: Iterable[str]) -> dict[str, int]:
        """How many seats are held back now."""
        now = self.clock.monotonic()
        with self._lock:
            counts = Counter(each.pool for each in self._held.values() if now < each.until)
        return {pool: counts[pool] for pool in {*pools, *counts}}

    def _began(self, pod: Pod, now: float, server_now: datetime) -> float:
        """When the hold began: now, for a pod that nobody else can have held back.

        Who led before, or this process before it was restarted, may have held back a pod that is older than this
        leadership, and nothing says since when. So for such a pod the hold counts from its creation: restarts never add
        up, and the error is that a seat which was not held back yet is placed by the ledger sooner.
        """
        created = pod.metadata.get("creationTimestamp")
        if not created:
            return now
        age = max((server_now - pod.created).total_seconds(), 0.0)
        led = self.led_since()
        return now if led is not None and now - age >= led else now - age


def crowded(short: Iterable[Shortage]) -> bool:
    """Whether a seat with these shortages could load on no node, or only where somebody who is over a budget should
    give memory back. To leave less than the floor by what the ledger promised is neither."""
    by_node: dict[str, bool] = {}
    for each in short:
        by_node[each.node] = by_node.get(each.node, False) or each.mib > each.floor_mib or bool(each.holders)
    return bool(by_node) and all(by_node.values())


def reclaimable(short: Iterable[Shortage], ledger: Ledger | None) -> tuple[Shortage, ...]:
    """The shortages, with only those holders from whom somebody may reclaim: not who is on record as unbudgeted, and
    has no more than was measured then."""
    if ledger is None:
        return tuple(short)
    # The last of a tenant's counts, and is the largest: nobody says which of them a pod is.
    by_size = sorted(ledger.unbudgeted, key=lambda each: each.measured_mib)
    recorded = {(each.tenant, each.pool): each.measured_mib for each in by_size}

    def over(shortage: Shortage, holder: UndeclaredUse) -> bool:
        return holder.mib > recorded.get((holder.namespace, shortage.pool), 0)

    return tuple(replace(each, holders=tuple(h for h in each.holders if over(each, h))) for each in short)
