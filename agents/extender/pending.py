"""Makes kube-scheduler retry a pending pod as soon as the pod fits.

kube-scheduler retries a refused pod at the next cluster event, or after five minutes. The scheduler may notice a pod's
end earlier than the extender. The scheduler never notices that a reservation of the extender has ended
(gpushare-scheduler-extender#187, kubernetes#122019). The extender causes an event in the cluster when a refused pod
would fit. The event is a change of a ResourceClaim that no pod uses.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from agents.extender.cache.cache import Cache
from agents.extender.filter import CachedRequest
from agents.extender.hold import crowded, reclaimable
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog, keep_running
from tenancy.ledger import Ledger

# After a refusal, the extender waits this many seconds before it causes an event, because kube-scheduler's first retry
# may come after 1 s.
GRACE_SECONDS = 1.5
# The longest time between two checks. The extender also checks at intervals, because the end of a reservation or of a
# reading causes no event.
_LOOK_SECONDS = 5.0
# kube-scheduler retries each pod within 5 minutes. A pod without a retry for this many seconds has been deleted.
_GONE_SECONDS = 600.0


@dataclass(frozen=True)
class PendingPod:
    """A refused pod, the nodes in its last filter request, the monotonic time and the ledger of the refusal. `reported`
    is True after the extender has caused an event for this pod.
    """

    request: CachedRequest
    nodes: tuple[str, ...]
    at: float
    ledger: Ledger | None
    reported: bool = False


@dataclass(kw_only=True)
class PendingPods:
    """The refused pods. One thread runs `keep`. Any thread may call `refuse`, `forget` and `grown`.

    `nudge` causes the event, and may raise AgentError. `serves` returns True while this process answers kube-scheduler.
    When this process starts to answer kube-scheduler, it calls `nudge` once for pods that other processes have refused.
    """

    cache: Cache
    ledger: Callable[[], Ledger | None]
    nudge: Callable[[], None]
    serves: Callable[[], bool]
    clock: Clock
    log: Log
    more_room: threading.Event = field(default_factory=threading.Event)  # wakes `keep`
    _served: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _refused: dict[str, PendingPod] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._refused)

    def refuse(self, uid: str, request: CachedRequest, nodes: Iterable[str]) -> None:
        """Adds a pod that now fits on none of these nodes."""
        shared = tuple(map(sys.intern, nodes))  # each parsed request contains new copies of the same node names
        with self._lock:
            self._refused[uid] = PendingPod(request, shared, self.clock.monotonic(), self.ledger())

    def forget(self, uid: str) -> None:
        with self._lock:
            self._refused.pop(uid, None)

    def grown(self) -> None:
        """Starts a check soon, because more memory may be free."""
        self.more_room.set()

    def look(self) -> bool:
        """If a refused pod would fit now, or was judged by an older ledger, causes an event and returns True. Raises
        AgentError.
        """
        if self._begins():
            return True
        now = self.clock.monotonic()
        with self._lock:
            self._refused = {uid: each for uid, each in self._refused.items() if now - each.at < _GONE_SECONDS}
            waiting = {
                uid: each for uid, each in self._refused.items() if not each.reported and now - each.at > GRACE_SECONDS
            }
        fitting = self._fitting(waiting, now)
        if not fitting:
            return False
        self.nudge()
        with self._lock:
            for uid, each in fitting.items():
                if self._refused.get(uid) is each:
                    self._refused[uid] = replace(each, reported=True)
        return True

    def keep(self) -> NoReturn:
        problem = ProblemLog(
            log=self.log,
            failing="pods that were refused may wait for 5 minutes",
            recovered="pods that were refused are retried as soon as there is room",
        )
        keep_running(self.look, problem, self._pause)

    def _begins(self) -> bool:
        serves = self.serves()
        begins = serves and not self._served
        if begins:
            self.nudge()
        self._served = serves
        return begins

    def _fitting(self, waiting: Mapping[str, PendingPod], now: float) -> Mapping[str, PendingPod]:
        rooms: dict[object, frozenset[str]] = {}
        ledger = self.ledger()
        fitting = {uid: pod for uid, pod in waiting.items() if pod.ledger is not ledger}
        for uid, pod in waiting.items():
            if uid in fitting:
                continue
            memory, entitlement = pod.request.memory, pod.request.entitlement
            if pod.request.held is not None:
                if pod.request.held.until <= now or not self._is_crowded(uid, pod, now):
                    fitting[uid] = pod
                continue
            nominee = uid if self.cache.is_nominated(uid) else ""  # the cache may keep memory for this pod
            key = memory, entitlement, nominee
            if key not in rooms:
                rooms[key] = self.cache.feasible_nodes(memory, now, nominee, entitlement, by_ledger=True)
            if not rooms[key].isdisjoint(pod.nodes):
                fitting[uid] = pod
        return fitting

    def _is_crowded(self, uid: str, pod: PendingPod, now: float) -> bool:
        short = self.cache.shortages(uid, pod.request.memory, pod.nodes, now, pod.request.entitlement)
        return crowded(reclaimable(short, self.ledger()))

    def _pause(self) -> None:
        if self.more_room.wait(_LOOK_SECONDS):
            self.more_room.clear()
            self.clock.sleep(GRACE_SECONDS)
