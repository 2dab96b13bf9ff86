"""Virtual time: events in a heap, and one thread at a time. Who sleeps, or waits for the API, is woken at its time.

An agent's pass is ordinary code, called by the thread that goes through the heap. When it sleeps, its thread waits, its
wake-up is one of the events, and another thread goes on with the heap: two agents' passes interleave at each request,
as they do on a cluster, and in the same order each time. Where nothing has changed for a while and nothing is wrong,
passes that would find what the last ones found are left out: time jumps to the next event.
"""

import heapq
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from threading import Semaphore, Thread, current_thread

from agents.runtime.clock import Clock
from simulation.timeline import Timeline

BEGIN = datetime(2026, 6, 1, tzinfo=UTC)
# So long after the last change every pass still happens, and until each agent has had its look (`settled`).
SETTLE_SECONDS = 12.0
# A jump ends so long before the next event: the agents are in the midst of a run then, as they mostly are.
BEFORE_SECONDS = 6.5
# While something is not as it should be: looks, further and further apart, next to those at `timers`.
LOOKS = (60.0, 300.0, 900.0, 3600.0, 14_400.0)


class EndedError(BaseException):
    """What was asleep when the world ended, or begins to sleep after that, does not go on."""


class Runner(Thread):
    """It goes through the heap, sleeps in an act, or is idle; it waits for `turn` in both of the latter."""

    def __init__(self, world: "World") -> None:
        super().__init__(daemon=True)
        self.world = world
        self.turn = Semaphore(0)

    def run(self) -> None:
        with suppress(EndedError):
            while True:
                self.world._wait(self)
                turn = self.world._go_through()
                self.world._idle.append(self)  # before anybody else runs
                turn.release()


@dataclass
class World:
    """The clock and what is due. `dice` are the agents' and the network's, not the plan's: a plan is made before."""

    dice: Random
    timeline: Timeline = field(default_factory=Timeline)
    begin: datetime = BEGIN
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
    # When, in which order, whether it is a loop's, and what: an act, or who wakes.
    _due: list[tuple[float, int, bool, Callable[[], object] | Runner]] = field(default_factory=list)
    _made: int = 0
    _until: float = 0.0
    _asleep: int = 0
    _runners: list[Runner] = field(default_factory=list)
    _idle: list[Runner] = field(default_factory=list)
    _caller: Semaphore = field(default_factory=lambda: Semaphore(0))  # of `run`
    _error: BaseException | None = None
    _ended: bool = False
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

    def _push(self, when: float, act: Callable[[], object] | Runner, *, tick: bool) -> None:
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
        """Everything up to that time; who sleeps beyond it goes on in the next call. Raises what an act raised."""
        self._until = until
        self._next_runner().turn.release()
        self._caller.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error
        self.now = max(self.now, until)

    def pass_time(self, seconds: float) -> None:
        """As `time.sleep`, of an act: what is due meanwhile happens."""
        if self._ended:
            raise EndedError
        end = self.now + max(seconds, 0.0)
        if end <= self._until and (not self._due or self._due[0][0] > end):
            self.now = end  # nobody is before it
            return
        runner = current_thread()
        if not isinstance(runner, Runner):
            raise TypeError("only an act sleeps")
        self._push(end, runner, tick=False)
        self._asleep += 1
        self._next_runner().turn.release()
        self._wait(runner)
        self._asleep -= 1

    def end(self) -> None:
        """Ends whoever sleeps where it is, and every thread."""
        self._ended = True
        for runner in self._runners:
            runner.turn.release()
            runner.join()

    def _next_runner(self) -> Runner:
        if not self._idle:
            runner = Runner(self)
            self._runners.append(runner)
            runner.start()
            return runner
        return self._idle.pop()

    def _wait(self, runner: Runner) -> None:
        if not self._ended:
            runner.turn.acquire()
        if self._ended:
            raise EndedError

    def _go_through(self) -> Semaphore:
        """Acts until it is somebody else's turn, which is returned: who wakes, or `run`'s caller."""
        try:
            while not self._ended:
                if self.jumping and self._is_quiet():
                    self._jump(self._until)
                if not self._due or self._due[0][0] > self._until:
                    return self._caller
                when, _, _, act = heapq.heappop(self._due)
                self.now = max(self.now, when)
                if isinstance(act, Runner):
                    return act.turn
                act()
        except EndedError:
            raise
        except BaseException as error:  # noqa: BLE001 (run's caller has it)
            self._error = error
            return self._caller
        raise EndedError

    def _is_quiet(self) -> bool:
        if self._asleep or self.now - self._changed_at <= SETTLE_SECONDS:
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
        return self.begin + timedelta(seconds=self.now + ahead_seconds)

    def clock(self, ahead: Callable[[], float] = lambda: 0.0) -> Clock:
        """An agent's clock; `ahead` is how far its node's time of day is off."""
        return Clock(
            monotonic=lambda: self.now,
            sleep=self.pass_time,
            now=lambda: self.time_of_day(ahead()),
        )
