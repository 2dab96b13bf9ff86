"""Simulates virtual time with a heap of events. Only one thread runs at a time.

An agent's pass is ordinary code in an event. When a pass sleeps, its thread waits, and another thread runs the next
events until the end of the sleep. Therefore the requests of two agents are mixed as on a real cluster, but always in
the same order. While nothing happens, the clock jumps to the next event.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from threading import Lock, Thread, current_thread

from agents.runtime.clock import Clock
from tests.simulation.model.timeline import Timeline

BEGIN = datetime(2026, 6, 1, tzinfo=UTC)
# The clock jumps only if nothing has changed for this time, and each agent has made a pass since the last change
# (`settled`).
SETTLE_SECONDS = 12.0
# A jump of the clock ends this number of seconds before the next event. Therefore the agents are in the middle of a run
# when the next event happens.
BEFORE_SECONDS = 6.5
# The lengths of the first, second and further jumps while something is wrong. A jump of the clock also ends at each of
# `timers`.
LOOKS = (60.0, 300.0, 900.0, 3600.0, 14_400.0)


class EndedError(BaseException):
    """Raised in a function that still sleeps at the end of the simulation, or that begins to sleep after the end."""


class Turn:
    """The turn of a thread that waits. A lock takes less CPU time than threading.Semaphore, which is Python code."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    def wait(self) -> None:
        self._lock.acquire()

    def give(self) -> None:
        self._lock.release()


class TickLoops:
    """The loops of the simulation, such as the passes of an agent. Each round of a loop is one event, called a tick.

    The World calls the methods of TickLoops before and after a jump of time. A subclass of TickLoops overrides these
    methods.
    """

    def tense(self) -> bool:
        """Returns True while something is wrong, so that a loop may act after some time even without a change."""
        return False

    def settled(self, since: float) -> bool:
        """Returns True if each loop has made a pass since `since`, and would change nothing in another pass."""
        return True

    def counting(self) -> bool:
        """Returns True while the time limit of a rule is running. While a time limit is running, the clock does not
        jump."""
        return False

    def before_jump(self, until: float) -> None:
        """Prepares the loops for a jump of the clock."""

    def resume(self) -> None:
        """Starts the loops again after a jump of the clock."""


@dataclass
class World:
    """The clock and the events. `dice` has the random numbers of the agents and the network. The plan of a simulation
    has separate random numbers.
    """

    dice: Random
    loops: TickLoops = field(default_factory=TickLoops)
    timeline: Timeline = field(default_factory=Timeline)
    now: float = 0.0
    # The ends of cool-downs, idle times and minimum ages. While something is wrong, a jump of the clock ends at each of
    # these times.
    timers: list[float] = field(default_factory=list)
    # The heap of events, sorted by their times. Events with the same time keep the order in which they were added. The
    # third item of a heap entry is True for a round of a loop. The last item of a heap entry is the function to call,
    # or the turn of a sleeping thread.
    _due: list[tuple[float, int, bool, Callable[[], object] | Turn]] = field(default_factory=list)
    _made: int = 0
    _until: float = 0.0
    _asleep: dict[Thread, Turn] = field(default_factory=dict)
    _idle: list[tuple[Thread, Turn]] = field(default_factory=list)  # threads that have no event
    _caller: Turn = field(default_factory=Turn)  # wakes the caller of `run`
    _error: BaseException | None = None
    _ended: bool = False
    _changed_at: float = 0.0
    _resumed_at: float = 0.0
    _looks: int = 0

    # Events

    def at(self, when: float, act: Callable[[], object]) -> None:
        """Adds an event at a fixed time."""
        self._push(when, act, tick=False)

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        self.at(self.now + seconds, act)

    def tick(self, seconds: float, act: Callable[[], object]) -> None:
        """Adds the next round of a loop. A jump of the clock removes the round, and `TickLoops.resume` then restarts
        the loop."""
        self._push(self.now + seconds, act, tick=True)

    def _push(self, when: float, act: Callable[[], object] | Turn, *, tick: bool) -> None:
        self._made += 1
        heapq.heappush(self._due, (max(when, self.now), self._made, tick, act))

    def stir(self) -> None:
        """Records that something has changed, so that agents may react."""
        self._changed_at = self.now
        self._looks = 0

    def say(self, who: str, what: str) -> None:
        self.timeline.add(self.now, who, what)

    def see(self, what: str) -> None:
        """Counts a state, a fault or an action by its name."""
        self.timeline.seen[what] += 1

    # Time

    def run(self, until: float) -> None:
        """Runs all events until the given time. If an event sleeps beyond the given time, the event continues in the
        next call.

        The method raises the errors of the events.
        """
        self._until = until
        self._go_on()
        self._caller.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error
        self.now = max(self.now, until)

    def pass_time(self, seconds: float) -> None:
        """Replaces `time.sleep` in an event. Other events happen while an event sleeps."""
        if self._ended:
            raise EndedError
        end = self.now + max(seconds, 0.0)
        if end <= self._until and (not self._due or self._due[0][0] > end):
            self.now = end  # there is no event before the end of the sleep
            return
        thread, turn = current_thread(), Turn()
        self._push(end, turn, tick=False)
        self._asleep[thread] = turn
        self._go_on()
        turn.wait()
        del self._asleep[thread]
        if self._ended:
            raise EndedError

    def end(self) -> None:
        """Ends all sleeping events and all threads."""
        self._ended = True
        for thread, turn in [*self._asleep.items(), *self._idle]:
            turn.give()
            thread.join()

    def _go_on(self) -> None:
        """Wakes or starts a thread. The thread runs events until another thread must wake up."""
        if self._idle:
            _, turn = self._idle.pop()
            turn.give()
        else:
            Thread(target=self._run_events, daemon=True).start()

    def _run_events(self) -> None:
        own = Turn()
        while not self._ended:
            try:
                turn = self._next_turn()
            except EndedError:
                return
            except BaseException as error:  # noqa: BLE001 (`run` raises it)
                self._error = error
                turn = self._caller
            self._idle.append((current_thread(), own))
            turn.give()
            own.wait()

    def _next_turn(self) -> Turn:
        """Runs events until a sleeping thread must wake up, and returns its turn. If no sleeping thread must wake up,
        returns the turn of the caller of `run`.
        """
        while not self._ended:
            if self._is_quiet():
                self._jump(self._until)
            if not self._due or self._due[0][0] > self._until:
                return self._caller
            when, _, _, act = heapq.heappop(self._due)
            self.now = max(self.now, when)
            if isinstance(act, Turn):
                return act
            act()
        raise EndedError

    def _is_quiet(self) -> bool:
        if self._asleep or self.now - self._changed_at <= SETTLE_SECONDS:
            return False
        return self.loops.settled(max(self._changed_at, self._resumed_at)) and not self.loops.counting()

    def _jump(self, until: float) -> None:
        kept = [each for each in self._due if not each[2]]
        target = min((each[0] - BEFORE_SECONDS for each in kept), default=until)
        self.timers = [each for each in self.timers if each > self.now]
        if self.loops.tense():
            look = self.now + LOOKS[min(self._looks, len(LOOKS) - 1)]
            self._looks += 1
            target = min((target, look, *self.timers))
        target = min(target, until)
        if target <= self.now:
            return
        self.loops.before_jump(target)
        self.timeline.seen["seconds: quiet"] += round(target - self.now)
        heapq.heapify(kept)
        self._due = kept
        self.now = self._resumed_at = target
        self.loops.resume()

    # Time of day

    def time_of_day(self, ahead_seconds: float = 0.0) -> datetime:
        return BEGIN + timedelta(seconds=self.now + ahead_seconds)

    def clock(self, ahead: Callable[[], float] = lambda: 0.0) -> Clock:
        """Returns a clock for an agent. `ahead` returns the number of seconds by which the clock of the agent's node is
        ahead."""
        return Clock(
            monotonic=lambda: self.now,
            sleep=self.pass_time,
            now=lambda: self.time_of_day(ahead()),
        )
