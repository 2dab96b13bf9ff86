"""Makes kube-scheduler retry pending pods, which found no free memory.

kube-scheduler retries a refused pod at the next event of the cluster, or after five minutes. It may learn of a pod's
end before the extender, and the end of a reservation is no event to kube-scheduler (gpushare-scheduler-extender#187,
kubernetes#122019). If a refused pod would fit by now, the extender makes an event: it changes one ResourceClaim that no
pod uses.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from agents.extender.cache.cache import Cache
from agents.extender.filter import Request
from agents.extender.hold import crowded, reclaimable
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog, keep_running
from tenancy.ledger import Ledger

# The scheduler may retry by itself after its shortest back-off, of 1 s.
GRACE_SECONDS = 1.5
# The interval between two checks, because reservations and readings end without an event.
_LOOK_SECONDS = 5.0
# A pod that the scheduler has not tried for so long is gone. The scheduler tries each pod within 5 minutes.
_GONE_SECONDS = 600.0


@dataclass(frozen=True)
class PendingPod:
    """A refused pod, with the nodes and the monotonic time of the refusal. `reported`: an event was made after that."""

    request: Request
    nodes: tuple[str, ...]
    at: float
    reported: bool = False


@dataclass(kw_only=True)
class PendingPods:
    """Remembers refused pods. Any thread reports pods; one thread runs `keep`.

    `nudge` makes the event, and raises AgentError. `serves` returns True while this process answers the scheduler. Pods
    that another process refused are not known here. So an event is made whenever this process begins to answer.
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

    def refuse(self, uid: str, request: Request, nodes: Iterable[str]) -> None:
        """Adds a pod that found no free memory on these nodes."""
        shared = tuple(map(sys.intern, nodes))  # each request has its own copy of every name
        with self._lock:
            self._refused[uid] = PendingPod(request, shared, self.clock.monotonic())

    def forget(self, uid: str) -> None:
        with self._lock:
            self._refused.pop(uid, None)

    def grown(self) -> None:
        """Checks again soon, because there may be more free memory."""
        self.more_room.set()

    def look(self) -> bool:
        """Makes an event if refused pods would fit now, and returns True in this case. Raises AgentError."""
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
        """Returns the pods that a filter would now place, or begin to hold back. Equal requests are judged once."""
        rooms: dict[object, frozenset[str]] = {}
        fitting = {}
        for uid, pod in waiting.items():
            memory, entitlement = pod.request.memory, pod.request.entitlement
            if pod.request.held is not None:
                if pod.request.held.until <= now or not self._is_crowded(uid, pod, now):
                    fitting[uid] = pod
                continue
            nominee = uid if self.cache.is_nominated(uid) else ""  # a nominated pod has memory that is kept for it
            key = memory, entitlement, nominee
            if key not in rooms:
                rooms[key] = self.cache.feasible_nodes(memory, now, nominee, entitlement, by_ledger=True)
            if not rooms[key].isdisjoint(pod.nodes):
                fitting[uid] = pod
        return fitting

    def _is_crowded(self, uid: str, pod: PendingPod, now: float) -> bool:
        """Returns True if a filter would still hold the seat back."""
        short = self.cache.shortages(uid, pod.request.memory, pod.nodes, now, pod.request.entitlement)
        return crowded(reclaimable(short, self.ledger()))

    def _pause(self) -> None:
        """Waits until there may be more free memory, or until the interval has passed."""
        if self.more_room.wait(_LOOK_SECONDS):
            self.more_room.clear()
            self.clock.sleep(GRACE_SECONDS)
