"""Simulates the agents that run as CronJobs.

The agents' code is real. The simulation replaces the CronJob controller and the kubelet: it chooses the start, the node
and the end of each run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agents.gate import main as gate
from agents.gate.types import Action
from agents.kube.client import Api
from agents.reconcile import main as reconcile
from agents.runtime.clock import Clock, seconds_left
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from agents.runtime.settings import read
from agents.telemetry.sampling import IncompletePassError
from agents.watchdog import main as watchdog
from tests.simulation.model.api import KilledError, Object, Server, ServerWatch
from tests.simulation.model.client import SimApi
from tests.simulation.model.devices import Machine
from tests.simulation.model.exporter import SimScraper
from tests.simulation.model.following import TakenWatches
from tests.simulation.model.log import SimLog
from tests.simulation.model.world import World

T = TypeVar("T")

MINUTE = 60.0
# The time from the full minute to the first pass of a run. The CronJob controller, the scheduler, the kubelet and
# Python need this time to start a run.
START_SECONDS = 3.0
DEADLINE_SECONDS = 58.0  # the Job's activeDeadlineSeconds


class SequentialPool(Executor):
    """Replaces a pool of threads, and makes the calls one after another."""

    def __init__(self, _most: int) -> None:
        pass

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        return iter([fn(*given) for given in zip(*iterables, strict=True)])


@dataclass(kw_only=True)
class CronAgent:
    """A CronJob with a run each minute. `stuck` is True if the run's node has failed, so that nothing can end the
    run.
    """

    name: str
    world: World
    server: Server
    environ: Mapping[str, str]
    overlaps: bool
    hosts: list[Machine]
    violated: Callable[[str, str], None]
    scraper: SimScraper
    failed: Callable[[str, AgentError], None] = lambda agent, error: None  # called with each failed pass
    host: Machine | None = None
    run: Any = None
    ends: float = 0.0
    busy: dict[int, float] = field(default_factory=dict)  # the start of each unfinished pass, by the run's id
    stuck: bool = False
    suspended: bool = False  # if True, no new run begins
    succeeded_at: float = 0.0
    looks: int = 1  # the number of passes until the agent has reacted to a change
    began: list[float] = field(default_factory=list)

    def settled(self, since: float) -> bool:
        """Returns True if the agent has made enough passes since `since`, and would change nothing in another pass."""
        if self.stuck or not any(host.alive and host.ready for host in self.hosts):
            return True
        return sum(at >= since for at in self.began[-3:]) >= self.looks and not self.leans()

    def leans(self) -> bool:
        """Returns True if the agent could act in a later pass even without a change."""
        return False

    def resume(self) -> None:
        """Begins a run after the clock has jumped, in the middle of a minute, as if the run had already made its
        earlier passes.
        """
        if not self.stuck:
            self.run = None  # the run from before the clock's jump has ended
        into = self.world.now % MINUTE
        self.succeeded_at = max(self.succeeded_at, self.world.now - into - 12.0) if not self.stuck else 0.0
        if into < 45.0 and not self.stuck:
            self.world.tick(max(START_SECONDS - into, 0.0), self._begin)
        self._next_minute()

    def suspend(self) -> None:
        self.suspended, self.run = True, None

    def _next_minute(self) -> None:
        self.world.tick(MINUTE - self.world.now % MINUTE, self._minute)

    def _minute(self) -> None:
        if self.suspended:
            return
        self._next_minute()
        if self.stuck and self.overlaps:
            self.stuck = False
        if self.stuck or (self.run is not None and not self.overlaps):
            self.world.see(f"{self.name}: a minute without a new run")
            return
        self.run = None
        self.world.tick(START_SECONDS * (0.7 + 0.6 * self.world.dice.random()), self._begin)

    def _begin(self) -> None:
        if self.suspended:
            return
        alive = [host for host in self.hosts if host.alive and host.ready]
        if not alive:
            return
        self.host = alive[int(self.world.now // MINUTE) % len(alive)]
        pod = f"{self.name}-{int(self.world.time_of_day().timestamp() // MINUTE)}-sim00"
        clock = self.world.clock(lambda: self.host.ahead if self.host else 0.0)
        deadline = self.world.now - self.world.now % MINUTE + DEADLINE_SECONDS
        try:
            api = SimApi(self.server, self.name, clock, deadline=deadline)
            self.run = self.make(
                {**self.environ, "POD_NAME": pod}, api, clock, SimLog(type(self).__name__.lower(), world=self.world)
            )
        except AgentError as error:
            self.world.say(self.name, f"ends: {error}")
            return
        self.ends = self.world.now + seconds_left(self.run.settings.run_seconds, pod, clock.now())
        self._pass(self.run)

    def make(self, environ: Mapping[str, str], api: Api, clock: Clock, log: Log) -> Any:
        """Returns a new run of the agent. Raises AgentError."""
        raise NotImplementedError

    def take(self, run: Any) -> None:
        run.take()

    def unsettled(self) -> bool:
        return False

    def _pass(self, run: object, *, last: bool = False) -> None:
        if run is not self.run or run is None or self.stuck:
            return
        if self.host is not None and not self.host.alive:
            self.stuck = True
            self.world.say(self.name, f"its run is lost with {self.host.name}")
            return
        if id(run) in self.busy:  # the run still makes a pass that a watch event caused
            self.world.tick(1.0, lambda: self._pass(run, last=last))
            return
        began = self.world.now
        status = self._once(run)
        if status is None or run is not self.run:
            return
        due = max(began + self._interval, self.world.now)
        if due < self.ends and not last:
            self.world.tick(due - self.world.now, lambda: self._pass(run))
        elif self.unsettled() and not last:
            self.world.tick(min(self._interval, 5.0), lambda: self._pass(run, last=True))
        else:
            self.run = None
            if status == 0:
                self.succeeded_at = self.world.now

    @property
    def _interval(self) -> float:
        return float(self.environ["INTERVAL_SECONDS"])

    def _once(self, run: object) -> int | None:
        """Makes a pass. Returns the run's exit status, or None if an error in this pass ended the run."""
        self.busy[id(run)] = self.world.now
        self.began = [*self.began[-3:], self.world.now]
        try:
            self.take(run)
        except AgentError as error:
            self.failed(self.name, error)
            if error.transient:
                self.world.see(f"{self.name}: a pass failed")
                self.world.say(self.name, f"pass: {str(error)[:160]}")
                return 1
            self.world.see(f"{self.name}: a run failed")
            self.world.say(self.name, f"ends: {str(error)[:160]}")
        except KilledError:
            self.world.see(f"{self.name}: killed")
        except Exception as error:  # noqa: BLE001 (a traceback is a finding)
            self.violated("traceback", f"{self.name}: {type(error).__name__}: {error}")
        else:
            return 0
        finally:
            del self.busy[id(run)]
        if run is self.run:
            self.run = None
        return None


@dataclass(kw_only=True)
class Watchdog(CronAgent):
    looks: int = 2

    def make(self, environ: Mapping[str, str], api: Api, clock: Clock, log: Log) -> watchdog.WatchdogRun:
        settings = read(watchdog.Settings, environ)
        return watchdog.WatchdogRun(settings=settings, api=api, clock=clock, log=log, scraper=self.scraper)

    def unsettled(self) -> bool:
        return bool(self.run is not None and self.run.unsettled)

    leans = unsettled


@dataclass(kw_only=True)
class Gate(CronAgent):
    """Simulates the gate. `made` is the last run of the CronJob. The watches of a run end when the next run begins."""

    made: gate.GateRun | None = None

    def make(self, environ: Mapping[str, str], api: Api, clock: Clock, log: Log) -> gate.GateRun:
        if self.made is not None:
            self.made.close()
        settings = read(gate.Settings, environ)
        self.made = gate.GateRun(
            settings=settings,
            api=api,
            clock=clock,
            log=log,
            scraper=self.scraper,
            ask=self.scraper.get,
            threads=SequentialPool,
        )
        self.made.cache.watch = lambda api, clock, sources: TakenWatches.of(self.server, sources)
        return self.made

    def leans(self) -> bool:
        agreed = self.run.agreed.values() if self.run is not None else ()
        return any(each.act is not Action.KEEP for each in agreed)


@dataclass(kw_only=True)
class Reconcile(CronAgent):
    """Simulates reconcile. Between its passes, reconcile applies watch events. An event that changes reconcile's
    decision starts a new pass.
    """

    follows: list[ServerWatch] = field(default_factory=list)
    pending: bool = False

    def make(self, environ: Mapping[str, str], api: Api, clock: Clock, log: Log) -> reconcile.Reconciler:
        self.pending = False
        return reconcile.Reconciler(settings=read(reconcile.Settings, environ), api=api, clock=clock, log=log)

    def take(self, run: Any) -> None:
        for follow in self.follows:
            follow.ended = True
        outcome = run.attempt()
        if outcome.pass_end is not None and run is self.run:
            try:
                self.follows = [
                    self.server.follow(source, lambda event: self._hear(run, outcome.pass_end, event))
                    for source in outcome.pass_end.sources()
                ]
            except AgentError:
                self.world.see("reconcile: polls")
        if not outcome.right:
            raise IncompletePassError("; ".join((*outcome.wrong, *outcome.without_nodes)))

    def _hear(self, run: object, pass_end: Any, event: Object) -> None:
        if run is not self.run or self.pending or self.world.now >= self.ends:
            return
        if pass_end.makes_due([event]):
            self.pending = True

            def due() -> None:
                self.pending = False
                if run is self.run and id(run) not in self.busy and self.host is not None and self.host.alive:
                    self._once(run)

            self.world.after(reconcile.PAUSE_SECONDS, due)

    @property
    def _interval(self) -> float:
        return 15.0 if self.follows else float(self.environ["INTERVAL_SECONDS"])
