"""Pods that found no room, and how kube-scheduler is made to retry them.

kube-scheduler tries a pod that an extender refused at the next event of the cluster, and else after five minutes. It
may see a pod's end before we do, and what ends a promise or frees a device is no event to it: such a pod would wait for
nothing (gpushare-scheduler-extender#187, kubernetes#122019). So where a refused pod would fit by now and was not tried,
an event is made: a change of one ResourceClaim, which nobody uses.
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

# What the scheduler needs to try again by itself: its shortest back-off, and a little.
GRACE_SECONDS = 1.5
# Between two looks where no release was seen: promises and measurements run out without a word.
_LOOK_SECONDS = 5.0
# A pod that the scheduler has not tried for so long is gone: it tries each within 5 minutes, and looks every 30 s.
_GONE_SECONDS = 600.0


@dataclass(frozen=True)
class PendingPod:
    """What a pod asked of which nodes, and when it was refused (monotonic seconds); `reported`: with an event since."""

    request: Request
    nodes: tuple[str, ...]
    at: float
    reported: bool = False


@dataclass(kw_only=True)
class PendingPods:
    """Any thread tells of pods, one runs `keep`. `nudge` makes the event; it raises AgentError. `serves`: whether this
    process answers the scheduler now. Whom another process refused, or this one before it was restarted, is not known:
    an event is made whenever it begins to."""

    cache: Cache
    ledger: Callable[[], Ledger | None]
    nudge: Callable[[], None]
    serves: Callable[[], bool]
    clock: Clock
    log: Log
    _served: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _refused: dict[str, PendingPod] = field(default_factory=dict)
    _grown: threading.Event = field(default_factory=threading.Event)

    def __len__(self) -> int:
        return len(self._refused)

    def refuse(self, uid: str, request: Request, nodes: Iterable[str]) -> None:
        """A pod found no room on these nodes."""
        shared = tuple(map(sys.intern, nodes))  # each request brings its own copy of every name
        with self._lock:
            self._refused[uid] = PendingPod(request, shared, self.clock.monotonic())

    def forget(self, uid: str) -> None:
        """A pod that found room."""
        with self._lock:
            self._refused.pop(uid, None)

    def grown(self) -> None:
        """There may be more room than before."""
        self._grown.set()

    def look(self) -> bool:
        """Whether an event was made, because pods would, or may, fit by now that were not tried. Raises AgentError."""
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
        """Does not return."""
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
        """Those who would be let through by now, or, of seats not held back yet, be held back. For those who ask alike
        is looked once."""
        rooms: dict[object, frozenset[str]] = {}
        fitting = {}
        for uid, pod in waiting.items():
            ask, standing = pod.request.ask, pod.request.standing
            if pod.request.held is not None:
                if pod.request.held.until <= now or not self._is_crowded(uid, pod, now):
                    fitting[uid] = pod
                continue
            keeper = uid if self.cache.nominated(uid) else ""  # who has room that others do not
            key = ask, standing, keeper
            if key not in rooms:
                rooms[key] = self.cache.feasible_nodes(ask, now, keeper, standing, by_ledger=True)
            if not rooms[key].isdisjoint(pod.nodes):
                fitting[uid] = pod
        return fitting

    def _is_crowded(self, uid: str, pod: PendingPod, now: float) -> bool:
        """Whether a seat that is held back would still be: as its filter asks, which lets it load under the floor."""
        short = self.cache.shortages(uid, pod.request.ask, pod.nodes, now, pod.request.standing)
        return crowded(reclaimable(short, self.ledger()))

    def _pause(self) -> None:
        """Until there may be more room, or a while."""
        if self._grown.wait(_LOOK_SECONDS):
            self._grown.clear()
            self.clock.sleep(GRACE_SECONDS)
