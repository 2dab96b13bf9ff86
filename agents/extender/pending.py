"""Pods that found no room, and when they are told that there is some.

kube-scheduler tries a pod that an extender refused at the next event of the cluster, and else after five minutes. It
may see a pod's end before we do, and what ends a promise or frees a device is no event to it: such a pod would wait for
nothing (gpushare-scheduler-extender#187, kubernetes#122019). So where a refused pod would fit by now and was not tried,
an event is made: a change of one ResourceClaim, which nobody uses.
"""

import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from agents.allocations import Allocations
from agents.clock import Clock
from agents.errors import AgentError
from agents.log import Log
from tenancy.devices import Ask

# What the scheduler needs to try again by itself: its shortest back-off, and a little.
GRACE_SECONDS = 1.5
# Between two looks where no release was seen: promises and measurements run out without a word.
_LOOK_SECONDS = 5.0
# A pod that the scheduler has not tried for so long is gone: it tries each within 5 minutes, and looks every 30 s.
_GONE_SECONDS = 600.0


@dataclass(frozen=True)
class Refused:
    """What a pod asked of which nodes, and when it was refused (monotonic seconds); `told`: an event was made since."""

    ask: Ask
    nodes: tuple[str, ...]
    at: float
    told: bool = False


@dataclass(kw_only=True)
class Waiting:
    """Any thread tells of pods, one runs `keep`. `nudge` makes the event; it raises AgentError."""

    allocations: Allocations
    nudge: Callable[[], None]
    clock: Clock
    log: Log
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _refused: dict[str, Refused] = field(default_factory=dict)
    _grown: threading.Event = field(default_factory=threading.Event)

    def __len__(self) -> int:
        return len(self._refused)

    def refuse(self, uid: str, ask: Ask, nodes: Iterable[str]) -> None:
        """A pod found no room on these nodes."""
        shared = tuple(map(sys.intern, nodes))  # each request brings its own copy of every name
        with self._lock:
            self._refused[uid] = Refused(ask, shared, self.clock.monotonic())

    def forget(self, uid: str) -> None:
        """A pod that found room."""
        with self._lock:
            self._refused.pop(uid, None)

    def grown(self) -> None:
        """There may be more room than before."""
        self._grown.set()

    def look(self) -> bool:
        """Whether an event was made, because pods would fit by now that were not tried. Raises AgentError."""
        now = self.clock.monotonic()
        with self._lock:
            self._refused = {uid: each for uid, each in self._refused.items() if now - each.at < _GONE_SECONDS}
            waiting = {
                uid: each for uid, each in self._refused.items() if not each.told and now - each.at > GRACE_SECONDS
            }
        with_room = {ask: self.allocations.with_room(ask, now) for ask in {each.ask for each in waiting.values()}}
        fitting = {uid: each for uid, each in waiting.items() if not with_room[each.ask].isdisjoint(each.nodes)}
        if not fitting:
            return False
        self.nudge()
        with self._lock:
            for uid, each in fitting.items():
                if self._refused.get(uid) is each:
                    self._refused[uid] = replace(each, told=True)
        return True

    def keep(self) -> None:
        """Looks for ever; tells when the problem changes."""
        told: str | None = None
        while True:
            if self._grown.wait(_LOOK_SECONDS):
                self._grown.clear()
                self.clock.sleep(GRACE_SECONDS)
            try:
                self.look()
                problem = None
            except AgentError as error:
                problem = f"pods that were refused may wait for 5 minutes: {error}"
            if problem and problem != told:
                self.log.error(problem)
            told = problem
