"""Virtual time: events in a heap, one thread. Who sleeps, or waits for the API, lets the others' events happen.

An agent's pass is ordinary code on this thread's stack. When it sleeps, what is due in that time runs nested in it, so
that two agents' passes interleave at each request, as they do on a cluster. Where nothing has changed for a while and
nothing is wrong, passes that would find what the last ones found are left out: time jumps to the next event.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from agents.runtime.clock import Clock
from tests.simulation.timeline import Timeline

BEGIN = datetime(2026, 6, 1, tzinfo=UTC)
# So long after the last change every pass still happens, and until each agent has had its look (`settled`).
SETTLE_SECONDS = 12.0
# A jump ends so long before the next event: the agents are in the midst of a run then, as they mostly are.
BEFORE_SECONDS = 6.5
# While something is not as it should be: looks, further and further apart, next to those at `timers`.
LOOKS = (60.0, 300.0, 900.0, 3600.0, 14_400.0)


@dataclass
class World:
    """The clock and what is due. `dice` are the agents' and the network's, not the plan's: a plan is made before."""

    dice: Random
    timeline: Timeline = field(default_factory=Timeline)
    now: float = 0.0
    jumping: bool = True
    jumped: float = 0.0
    passes: int = 0
    # What is not as it should be, so that time alone may make an agent act.
    tense: Callable[[], bool] = lambda: False
    # Whether every agent has looked, by a pass that began after that time, and leans to nothing.
    settled: Callable[[float], bool] = lambda since: True
    # Whether some promise with a time is being counted: then nothing is left out.
    counting: Callable[[], bool] = lambda: False
    # Called after a jump: the agents' loops take up again.
    resume: Callable[[], None] = lambda: None
    before_jump: Callable[[float], None] = lambda until: None
    # When an agent's cool-down, idleness or minimum age ends: worth a look, where something is not as it should be.
    timers: list[float] = field(default_factory=list)
    _due: list[tuple[float, int, bool, Callable[[], object]]] = field(default_factory=list)
    _made: int = 0
    _depth: int = 0
    _changed_at: float = 0.0
    _resumed_at: float = 0.0
    _looks: int = 0

    # Events

    def at(self, when: float, act: Callable[[], object]) -> None:
        """What will happen then, whatever the agents do."""
        self._push(when, act, tick=False)

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        self.at(self.now + seconds, act)

    def tick(self, seconds: float, act: Callable[[], object]) -> None:
        """A loop's next round, which a jump leaves out; `resume` begins the loop again."""
        self._push(self.now + seconds, act, tick=True)

    def _push(self, when: float, act: Callable[[], object], *, tick: bool) -> None:
        self._made += 1
        heapq.heappush(self._due, (max(when, self.now), self._made, tick, act))

    def stir(self) -> None:
        """Something changed that an agent may answer to."""
        self._changed_at = self.now
        self._looks = 0

    def say(self, who: str, what: str) -> None:
        self.timeline.add(self.now, who, what)

    def see(self, what: str) -> None:
        """Counts a state, a fault or an action."""
        self.timeline.seen[what] += 1

    # Time

    def run(self, until: float) -> None:
        """Everything up to that time."""
        while True:
            if self.jumping and self._is_quiet():
                self._jump(until)
            if not self._due or self._due[0][0] > until:
                break
            self._step()
        self.now = max(self.now, until)

    def pass_time(self, seconds: float) -> None:
        """As `time.sleep`: what is due meanwhile happens, on top of the caller."""
        end = self.now + max(seconds, 0.0)
        self._depth += 1
        try:
            while self._due and self._due[0][0] <= end:
                self._step()
        finally:
            self._depth -= 1
        self.now = max(self.now, end)

    def _step(self) -> None:
        when, _, _, act = heapq.heappop(self._due)
        self.now = max(self.now, when)
        act()

    def _is_quiet(self) -> bool:
        if self._depth or self.now - self._changed_at <= SETTLE_SECONDS:
            return False
        return self.settled(max(self._changed_at, self._resumed_at)) and not self.counting()

    def _jump(self, until: float) -> None:
        kept = [each for each in self._due if not each[2]]
        target = min((each[0] - BEFORE_SECONDS for each in kept), default=until)
        self.timers = [each for each in self.timers if each > self.now]
        if self.tense():
            look = self.now + LOOKS[min(self._looks, len(LOOKS) - 1)]
            self._looks += 1
            target = min((target, look, *self.timers))
        target = min(target, until)
        if target <= self.now:
            return
        self.before_jump(target)
        heapq.heapify(kept)
        self._due = kept
        self.jumped += target - self.now
        self.now = self._resumed_at = target
        self.resume()

    # Time of day

    def time_of_day(self, ahead_seconds: float = 0.0) -> datetime:
        return BEGIN + timedelta(seconds=self.now + ahead_seconds)

    def clock(self, ahead: Callable[[], float] = lambda: 0.0) -> Clock:
        """An agent's clock; `ahead` is how far its node's time of day is off."""
        return Clock(
            monotonic=lambda: self.now,
            sleep=self.pass_time,
            now=lambda: self.time_of_day(ahead()),
        )
