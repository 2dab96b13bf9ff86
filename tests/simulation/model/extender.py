"""Simulates the extender in the scheduler's pod. The extender's code is real, but the loops of its threads are events
in virtual time.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from agents.extender import main
from agents.kube.informer import Informer
from agents.runtime.errors import AgentError
from agents.runtime.http_message import HttpRequest, HttpResponse
from agents.runtime.settings import read
from agents.telemetry.client import Scraper
from tests.simulation.model.api import KilledError, Server
from tests.simulation.model.client import SimApi
from tests.simulation.model.following import SimInformer
from tests.simulation.model.log import SimLog
from tests.simulation.model.world import World


class CallbackEvent(threading.Event):
    """Replaces a threading.Event on which a thread waits. Setting the event calls `act`."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def set(self) -> None:
        self._act()


@dataclass(kw_only=True)
class ExtenderPod:
    """The extender's process. `starts` counts the starts of the extender's process, including the starts after a jump
    of the clock.

    A new start of the process ends the loops of earlier starts. If `elected` is True, the extender answers only while
    the Lease names its pod `name`.
    """

    world: World
    server: Server
    environ: Mapping[str, str]
    violated: Callable[[str, str], None]
    scraper: Scraper
    starts: int = 0
    alive: bool = True
    rounds: int = 0
    name: str = "scheduler-0"
    elected: bool = False

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Starts the process."""
        clock = self.world.clock()
        lease = self.environ["LEASE"] if self.elected else ""
        settings = read(main.Settings, {**self.environ, "LEASE": lease, "POD_NAME": self.name})
        self.extender = main.Extender(
            settings,
            partial(SimApi, self.server, "extender", clock),
            clock,
            SimLog("extender", world=self.world),
            scraper=self.scraper,
            more_room=CallbackEvent(self._grown),
        )
        owners = (getattr(run, "__self__", None) for run in self.extender.threads())
        self.following = [
            SimInformer(informer=owner, world=self.world, server=self.server)
            for owner in owners
            if isinstance(owner, Informer)
        ]
        self.starts += 1
        this = self.starts
        self.world.tick(0.0, lambda: self._loops(this))

    def kill(self, seconds: float) -> None:
        self.alive = False
        self.starts += 1
        for following in self.following:
            following.end()

        def again() -> None:
            self.alive = True
            self.begin()

        self.world.after(seconds, again)

    def verb(self, request: HttpRequest) -> HttpResponse:
        if not self.alive:
            return HttpResponse(503, b"")
        try:
            return self.extender.verb_handler.answer(request)
        except KilledError:
            self.kill(5.0)
            return HttpResponse(503, b"")
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001 (a traceback is a finding)
            self.violated("traceback", f"extender {request.path}: {type(error).__name__}: {error}")
            return HttpResponse(500, b"")

    def resume(self) -> None:
        if self.alive:
            self.starts += 1
            self.rounds = 0
            self._loops(self.starts)

    def _loops(self, start: int) -> None:
        if start != self.starts or not self.alive:
            return
        for following in self.following:
            self._every(start, 3.0, self._step(following.look))
        self._every(start, 5.0, self._measure)
        self._every(start, 5.0, self._step(self.extender.waiting.look))
        self._every(start, 120.0, self._step(self.extender.comparer.pass_once), first=120.0)

    def _every(self, start: int, seconds: float, step: Callable[[], object], first: float = 0.0) -> None:
        def go() -> None:
            if start == self.starts and self.alive:
                step()
                self.world.tick(seconds, go)

        self.world.tick(first, go)

    def _step(self, step: Callable[[], object]) -> Callable[[], None]:
        def go() -> None:
            try:
                step()
            except AgentError:
                self.world.see("extender: a step failed")
            except KilledError:
                self.kill(5.0)

        return go

    def _measure(self) -> None:
        """While a pod waits, the extender reads the exporters in each round. While no pod waits, the extender reads the
        exporters only in one of three rounds.

        Without waiting pods, the extender's readings are up to 15 s old, and not 5 s. Fewer reads make the simulation
        faster.
        """
        self.rounds += 1
        if self.rounds % 3 == 1 or len(self.extender.waiting) or not self.extender.measured.tried:
            self._step(self.extender.measured.refresh)()

    def _grown(self) -> None:
        start = self.starts
        if len(self.extender.waiting):
            self.world.tick(1.5, lambda: start == self.starts and self._step(self.extender.waiting.look)())
