"""The agents, their own code, driven by virtual time: who runs when, on which node, and what becomes of a run.

What is the agents' here is everything from their settings to their requests; what is the simulation's is what the
kubelet, the CronJob controller and the threads of a process do: it calls a pass when it is due.
"""

import http.client
import io
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from email.message import Message
from functools import lru_cache, partial
from typing import Any
from unittest import mock
from urllib.parse import urlencode

from agents.exporter.attribution import attribute
from agents.exporter.main import Gauge
from agents.exporter.metrics import HELP, HOUR
from agents.exporter.pod_names import Registrar
from agents.exporter.publish import Publisher
from agents.extender import main as extender_main
from agents.extender.cache import measured
from agents.gate import deployments as gate_deployments
from agents.gate import main as gate_main
from agents.gate import pods as gate_pods
from agents.gate.types import Action
from agents.kube import client as kube_client
from agents.kube import journal as kube_journal
from agents.kube import nodes as kube_nodes
from agents.kube.informer import Informer, backoff_seconds
from agents.kube.ledger import StoredLedger
from agents.kube.pods import Pod
from agents.reconcile import main as reconcile_main
from agents.reconcile import wait as reconcile_wait
from agents.runtime import exposition, http_client
from agents.runtime.clock import Clock, seconds_left
from agents.runtime.errors import AgentError
from agents.runtime.exposition import Sample
from agents.runtime.log import Log
from agents.runtime.settings import read
from agents.telemetry import client as telemetry_client
from agents.telemetry import reading as telemetry_reading
from agents.telemetry.device import Scan
from agents.telemetry.sampling import UnsoundError
from agents.watchdog import main as watchdog_main
from simulation.api import Followed, KilledError, Object, Server, SimApi, Wire, client, endpoint
from simulation.devices import Machine
from simulation.world import World
from tenancy.ledger import Ledger
from tenancy.names import METRIC_API_AGE, METRIC_BUILD_INFO, METRIC_SAMPLE_AGE

MINUTE = 60.0
# From its minute to a run's first pass: the controller, the scheduler, the kubelet, Python.
START_SECONDS = 3.0
DEADLINE_SECONDS = 58.0  # of the Job (activeDeadlineSeconds)


class SimLog(Log):
    """Into the timeline: what an agent says at warning and above."""

    world: World
    last: str

    def __init__(self, agent: str, world: World) -> None:
        super().__init__(agent, None)  # type: ignore[arg-type]
        object.__setattr__(self, "world", world)
        object.__setattr__(self, "last", "")

    def _write(self, level: str, message: str, fields: Mapping[str, object]) -> None:
        if level == "info" and not message.startswith(("did ", "wrote")):
            return
        told = " ".join(f"{key}={value}" for key, value in fields.items() if key in ("gate", "pods", "why", "problem"))
        line = f"{message} {told}"[:200]
        if line != self.last:
            object.__setattr__(self, "last", line)
            self.world.say(self.agent, line)


# The CronJobs


@dataclass(kw_only=True)
class CronAgent:
    """A CronJob: a run a minute, its passes, its end. `stuck` is a run whose node died, which nobody can end."""

    name: str
    world: World
    server: Server
    environ: Mapping[str, str]
    overlaps: bool
    hosts: list[Machine]
    violated: Callable[[str, str], None]
    interval: float = 5.0
    host: Machine | None = None
    run: Any = None
    ends: float = 0.0
    minute: int = -1
    busy: dict[int, float] = field(default_factory=dict)  # when the passes under way began, by the id of their run
    stuck: bool = False
    second: "CronAgent | None" = None
    succeeded_at: float = 0.0
    generation: int = 0
    looks: int = 1  # passes that it takes to see what there is to do
    began: list[float] = field(default_factory=list)

    def settled(self, since: float) -> bool:
        """Whether it has looked since then, and will not act by looking again."""
        if self.stuck or not any(host.alive and host.ready for host in self.hosts):
            return True
        return sum(at >= since for at in self.began[-3:]) >= self.looks and not self.leans()

    def leans(self) -> bool:
        """Whether its next passes may act though nothing changes."""
        return False

    def resume(self) -> None:
        """After a jump, in the midst of a minute: the run of that minute, as if its passes had gone on."""
        self.generation += 1
        if not self.stuck:
            self.run = None  # that run has ended meanwhile
        into = self.world.now % MINUTE
        self.succeeded_at = max(self.succeeded_at, self.world.now - into - 12.0) if not self.stuck else 0.0
        generation = self.generation
        if into < 45.0 and not self.stuck:
            self.world.tick(max(START_SECONDS - into, 0.0), lambda: self._begin(generation))
        self._next_minute()

    def _next_minute(self) -> None:
        generation = self.generation
        self.world.tick(MINUTE - self.world.now % MINUTE, lambda: self._minute(generation))

    def _minute(self, generation: int) -> None:
        if generation != self.generation:
            return
        self._next_minute()
        if self.stuck and self.overlaps:
            self.stuck = False
        if self.stuck or (self.run is not None and not self.overlaps):
            self.world.see(f"{self.name}: a minute without a new run")
            return
        self.run = None
        self.world.tick(START_SECONDS * (0.7 + 0.6 * self.world.dice.random()), lambda: self._begin(generation))

    def _begin(self, generation: int | None = None) -> None:
        if generation is not None and generation != self.generation:
            return
        alive = [host for host in self.hosts if host.alive and host.ready]
        if not alive:
            return
        self.host = alive[int(self.world.now // MINUTE) % len(alive)]
        pod = f"{self.name}-{int(self.world.time_of_day().timestamp() // MINUTE)}-sim00"
        clock = self.world.clock(lambda: self.host.ahead if self.host else 0.0)
        deadline = self.world.now - self.world.now % MINUTE + DEADLINE_SECONDS
        try:
            run_seconds = self._make({**self.environ, "POD_NAME": pod}, clock, deadline)
        except AgentError as error:
            self.world.say(self.name, f"ends: {error}")
            return
        self.ends = self.world.now + seconds_left(run_seconds, pod, clock.now())
        self._pass(self.run)

    def _make(self, environ: Mapping[str, str], clock: Clock, deadline: float) -> float:
        raise NotImplementedError

    def _take(self, run: Any) -> None:
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
        if id(run) in self.busy:  # with a pass that watches made due
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
        """The status of a pass; None where the run has ended with it."""
        self.world.passes += 1
        self.busy[id(run)] = self.world.now
        self.began = [*self.began[-3:], self.world.now]
        try:
            self._take(run)
        except AgentError as error:
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

    def _make(self, environ: Mapping[str, str], clock: Clock, deadline: float) -> float:
        settings = settings_of(watchdog_main.Settings, environ)
        log = SimLog("watchdog", self.world)
        api = client(self.server, self.name, clock, deadline)
        self.run = watchdog_main.WatchdogRun(settings=settings, api=api, clock=clock, log=log)
        return float(settings.run_seconds)

    def unsettled(self) -> bool:
        return bool(self.run is not None and self.run.unsettled)

    leans = unsettled


@dataclass(kw_only=True)
class Gate(CronAgent):
    def _make(self, environ: Mapping[str, str], clock: Clock, deadline: float) -> float:
        settings = settings_of(gate_main.Settings, environ)
        log = SimLog("gate", self.world)
        api = client(self.server, self.name, clock, deadline)
        self.run = gate_main._Run(settings=settings, api=api, clock=clock, log=log)
        return float(settings.run_seconds)

    def leans(self) -> bool:
        agreed = self.run.agreed.values() if self.run is not None else ()
        return any(each.act is not Action.KEEP for each in agreed)


@dataclass(kw_only=True)
class Reconcile(CronAgent):
    """Its wait between passes is by watches: a pass is due when what they show would change what it does."""

    follows: list[Followed] = field(default_factory=list)
    pending: bool = False

    def _make(self, environ: Mapping[str, str], clock: Clock, deadline: float) -> float:
        settings = settings_of(reconcile_main.Settings, environ)
        log = SimLog("reconcile", self.world)
        api = client(self.server, self.name, clock, deadline)
        self.run = reconcile_main.Reconciler(settings=settings, api=api, clock=clock, log=log)
        self.pending = False
        return float(settings.run_seconds)

    def _take(self, run: Any) -> None:
        for follow in self.follows:
            follow.ended = True
        outcome = run._attempt()
        if outcome.settled is not None and run is self.run:
            try:
                self.follows = [
                    self.server.follow(source, lambda event: self._hear(run, outcome.settled, event))
                    for source in outcome.settled.sources()
                ]
            except AgentError:
                self.world.see("reconcile: polls")
        if not outcome.right:
            raise UnsoundError("; ".join((*outcome.wrong, *outcome.without_nodes)))

    def _hear(self, run: object, settled: Any, event: Object) -> None:
        if run is not self.run or self.pending or self.world.now >= self.ends:
            return
        if reconcile_wait._is_due(settled, [event]):
            self.pending = True

            def due() -> None:
                self.pending = False
                if run is self.run and id(run) not in self.busy and self.host is not None and self.host.alive:
                    self._once(run)

            self.world.after(reconcile_main.PAUSE_SECONDS, due)

    @property
    def _interval(self) -> float:
        return 15.0 if self.follows else float(self.environ["INTERVAL_SECONDS"])


# Informers


@dataclass(kw_only=True)
class Following:
    """What Informer.run does, by events: it lists where that is wanted, and takes over what watches tell."""

    informer: Informer
    world: World
    server: Server
    stale: bool = True
    ended: bool = False
    listing: bool = False
    failures: int = 0
    told_at: float = 0.0
    follows: list[Followed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.informer.relist = self._relist  # type: ignore[method-assign]

    def look(self) -> None:
        """As it comes round. Raises AgentError and KilledError."""
        self.informer.alive_at = self.world.now
        broken = any(follow.ended for follow in self.follows)
        if self.ended or self.listing or not self.informer.ready() or not (self.stale or broken):
            return
        self.listing = True
        try:
            self._unfollow()
            self.stale = False
            sources = self.informer.lists()
            self.informer.heard_at = self.world.now
            self.follows = [self.server.follow(source, self._hear) for source in sources]
            self.failures = 0
        except AgentError:
            self.stale = True
            self.failures += 1
            self.world.see("informer: relists")
            self.world.tick(backoff_seconds(self.failures, self.world.dice.random()), self._again)
        finally:
            self.listing = False

    def end(self) -> None:
        """With its process."""
        self.ended = True
        self._unfollow()

    def heard(self) -> None:
        """Of an API server that is there, bookmarks come each minute."""
        if self.follows and not self.stale and not self.server.network.down:
            self.informer.heard_at = self.world.now

    def _again(self) -> None:
        if self.stale:
            with suppress(KilledError):
                self.look()

    def _relist(self) -> None:
        self.stale = True

    def _hear(self, event: Object) -> None:
        def deliver() -> None:
            if not self.ended and not self.stale:
                self.informer.heard_at = self.world.now
                try:
                    self.informer.apply(event)
                except (AgentError, KilledError):
                    self.stale = True

        # Later, by a lag of the moment, and in their order.
        self.told_at = max(self.told_at, self.world.now + 0.02 + 0.2 * self.world.dice.random())
        self.world.at(self.told_at, deliver)

    def _unfollow(self) -> None:
        for follow in self.follows:
            follow.ended = True
        self.follows = []


# The exporters


@dataclass(kw_only=True)
class Exporter:
    """On a node: reads the devices, answers scrapes, publishes its slice. `trouble` is what a fault makes of it."""

    machine: Machine
    world: World
    server: Server
    trouble: str = ""
    selected: bool = True  # by its DaemonSet
    address: str = "10.0.0.1"
    generation: int = 0
    frozen: tuple[int, str] | None = None

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """As a process that has just started."""
        name = f"exporter@{self.machine.name}"
        clock = self.world.clock(lambda: self.machine.ahead)
        api = client(self.server, name, clock)
        log = SimLog(name, self.world)
        space, node = "gpu-tenancy-system", self.machine.name
        self.registrar = Registrar(api=api, node=node, ledger_namespace=space, clock=clock, log=log, slices=True)
        self.following = Following(informer=self.registrar.informer, world=self.world, server=self.server)
        self.gauge = Gauge(read=self._read, registrar=self.registrar, clock=clock, interval_seconds=5)
        self.publisher = Publisher(
            api=api,
            node=node,
            ledger_namespace=space,
            survey=lambda: self.gauge.last.survey,
            registry=lambda: self.registrar.last,
            clock=clock,
            interval_seconds=5,
        )

    def _read(self) -> Any:
        if self.machine.failing:
            raise AgentError(self.machine.failing)
        return attribute(Scan(self.machine.occupancies()), self.machine.containers.get)

    def resume(self) -> None:
        self.generation += 1
        generation = self.generation
        for loop in (self._registrar, self._sample, self._publish):
            self.world.tick(0.0, partial(loop, generation))

    def _sample(self, generation: int) -> None:
        if generation != self.generation:
            return
        if self.machine.alive:
            self.gauge.sample()
        self.world.tick(5.0 + 0.05 * self.world.dice.random(), lambda: self._sample(generation))

    def _registrar(self, generation: int) -> None:
        """Looks after its watches."""
        if generation != self.generation:
            return
        if self.machine.alive:
            self._quietly(self.following.look)
            self.following.heard()
        self.world.tick(5.0, lambda: self._registrar(generation))

    def _publish(self, generation: int) -> None:
        if generation != self.generation:
            return
        if self.machine.alive:
            self._quietly(self.publisher.publish)
        self.world.tick(15.0, lambda: self._publish(generation))

    def _quietly(self, step: Callable[[], object]) -> None:
        try:
            step()
        except (AgentError, KilledError):
            self.world.see("exporter: a step failed")

    def answer(self) -> tuple[int, str]:
        """GET /metrics. Raises URLError where nobody answers."""
        if not self.machine.alive or not self.selected or self.trouble in ("gone", "hangs"):
            if self.trouble == "hangs" or not self.machine.alive:
                self.world.pass_time(1.5)
            raise urllib.error.URLError(TimeoutError("timed out"))
        if self.trouble == "frozen":
            self.frozen = self.frozen or self.gauge.metrics()
            return self.frozen
        self.frozen = None
        status, text = self.gauge.metrics()
        if self.trouble == "lies" and status == 200:
            text = _shifted(text)
        return status, text

    def serves(self, name: str) -> bool:
        """Whether a scrape would find that metric now."""
        if not self.machine.alive or not self.selected or self.trouble in ("gone", "hangs"):
            return False
        return f"\n{name}{{" in self.gauge.metrics()[1]


_API_AGE = f"# HELP {METRIC_API_AGE} {HELP[METRIC_API_AGE]}\n# TYPE {METRIC_API_AGE} gauge\n{METRIC_API_AGE} "


def _shifted(text: str) -> str:
    """Free memory that is a third of the device's too high: the figures contradict themselves."""
    lines = []
    for line in text.splitlines():
        if line.startswith("gpu_device_memory_free_bytes{"):
            name, _, value = line.rpartition(" ")
            lines.append(f"{name} {float(value) + 5000 * 2**20!r}")
        else:
            lines.append(line)
    return "\n".join((*lines, ""))


# The extender


@dataclass(kw_only=True)
class ExtenderPod:
    """The scheduler's pod: its extender's loops, by virtual time."""

    world: World
    server: Server
    environ: Mapping[str, str]
    violated: Callable[[str, str], None]
    generation: int = 0
    alive: bool = True
    rounds: int = 0

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """As a process that has just started."""
        clock = self.world.clock()
        environ = {**self.environ, "LEASE": "", "POD_NAME": "scheduler-0"}
        settings = read(extender_main.Settings, environ)
        exporters = read(measured.Settings, environ) if "EXPORTER_NAMESPACE" in environ else None
        self.extender = extender_main.Extender(
            settings, exporters, endpoint(self.server, "extender"), clock, SimLog("extender", self.world)
        )
        parts = {type(run.__self__).__name__: run.__self__ for run in self.extender.threads()}  # type: ignore[attr-defined]
        self.informers, self.pending = parts["Informers"], parts["PendingPods"]
        self.audit, self.measured = parts["Comparer"], parts.get("Measured")
        self.binder = self.extender._binder
        self.following = Following(informer=self.informers._informer, world=self.world, server=self.server)
        self.pending.grown = self._grown
        self.informers.grown = self._grown
        if self.measured:
            self.measured.grown = self._grown
        self.generation += 1
        generation = self.generation
        self.world.tick(0.0, lambda: self._loops(generation))

    def kill(self, seconds: float) -> None:
        self.alive = False
        self.generation += 1
        self.following.end()

        def again() -> None:
            self.alive = True
            self.begin()

        self.world.after(seconds, again)

    def verb(self, request: Any) -> Any:
        if not self.alive:
            return mock.Mock(status=503, body=b"")
        self.world.passes += 1
        try:
            return self.extender.verb_desk.answer(request)
        except KilledError:
            self.kill(5.0)
            return mock.Mock(status=503, body=b"")
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001 (a traceback is a finding)
            self.violated("traceback", f"extender {request.path}: {type(error).__name__}: {error}")
            return mock.Mock(status=500, body=b"")

    def resume(self) -> None:
        if self.alive:
            self.generation += 1
            self.rounds = 0
            self._loops(self.generation)

    def _loops(self, generation: int) -> None:
        if generation != self.generation or not self.alive:
            return
        self._every(generation, 3.0, self._step(self.following.look))
        self._every(generation, 5.0, self._measure)
        self._every(generation, 5.0, self._step(self.pending.look))
        self._every(generation, 5.0, self._step(self._settle))
        self._every(generation, 120.0, self._step(self.audit.pass_once), first=120.0)

    def _every(self, generation: int, seconds: float, step: Callable[[], object], first: float = 0.0) -> None:
        def go() -> None:
            if generation == self.generation and self.alive:
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
        """Where nobody waits, every third time: a pod that comes then finds a reading of up to 15 s, not of 5."""
        self.rounds += 1
        if self.measured and (self.rounds % 3 == 1 or len(self.pending) or not self.measured.tried):
            self.world.passes += 1
            self._step(self.measured._try)()

    def _settle(self) -> None:
        if self.informers.names and self.binder.unsettled:
            self.binder.settle(self.informers.names)

    def _grown(self) -> None:
        generation = self.generation
        if len(self.pending):
            self.world.tick(1.5, lambda: generation == self.generation and self._step(self.pending.look)())


# What all of them reach the world by


@dataclass
class Probe:
    """The queue of an on-demand tenant, as its HTTP probe finds it."""

    pending: int = 0
    status: int = 200


class _Now:
    """A ThreadPoolExecutor without threads."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> "_Now":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, act: Callable[[Any], Any], each: Any) -> Iterator[Any]:
        return iter([act(one) for one in each])


@dataclass
class _Answer:
    status: int
    body: bytes
    reason: str = ""

    def read(self, _limit: int = -1) -> bytes:
        body, self.body = self.body, b""
        return body

    read1 = read

    def __enter__(self) -> "_Answer":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def wired(get: Callable[[str], tuple[int, str]], *, remembering: bool = True) -> Iterator[None]:
    """Within the block agents reach `get` by HTTP, and Servers by their Api; nobody starts a thread."""

    class Opener:
        def open(self, url: Any, *_: object, **__: object) -> _Answer:
            url = getattr(url, "full_url", url)
            status, text = get(url)
            if status != 200:
                raise urllib.error.HTTPError(
                    url, status, http.client.responses[status], Message(), io.BytesIO(text.encode())
                )
            return _Answer(status, text.encode())

    opener = Opener()
    wires: list[tuple[Any, str, Any]] = [
        (urllib.request, "build_opener", lambda *_: opener),
        (gate_main, "ThreadPoolExecutor", _Now),
        (telemetry_client, "ThreadPoolExecutor", _Now),
        (http_client, "_within", lambda _, attempt: attempt()),
        (extender_main, "Api", SimApi),
        (extender_main, "Https", Wire),
    ]
    with ExitStack() as stack:
        for target, name, new in (*wires, *(_remembered() if remembering else ())):
            stack.enter_context(mock.patch.object(target, name, new))
        yield


def _remembered() -> Iterator[tuple[Any, str, Any]]:
    """What of the agents' is asked once only, and the answer kept for as long as the block."""
    known = Remembered()
    yield StoredLedger, "ledger", _ledger
    yield kube_client, "urlencode", _urlencode
    yield kube_journal, "content_of", _by_identity(kube_journal.content_of)
    yield kube_nodes, "node_of", _by_identity(kube_nodes.node_of)
    yield gate_deployments, "_deployment", _by_identity(gate_deployments._deployment)
    yield gate_pods, "_bound", _by_identity(gate_pods._bound, lambda pod, ledger, _: (pod.item, ledger))
    yield gate_main, "_entries", _by_identity(gate_main._entries, lambda record: (record.content,))
    yield Gauge, "metrics", _Answers()
    yield telemetry_client, "parse", _Readings()
    yield exposition, "_braces", _braces
    yield exposition, "_sample", _sample
    yield Pod, "request", lambda pod, resource, per_unit=1: known.request(pod, resource, per_unit=per_unit)
    yield Ledger, "declared_mib", lambda ledger, space, spec: known.declared_mib(ledger, space, spec)  # noqa: PLW0108


# What follows is remembered because it is a pure function of frozen text or of objects that a Server never changes: it
# is most of what a pass costs. What is remembered is the agents' own answer.

_read_ledger, _read_sample = StoredLedger.ledger, exposition._sample
_escape = lru_cache(maxsize=10_000)(exposition._escape)
_declared_mib, _request = Ledger.declared_mib, Pod.request


@lru_cache(maxsize=64)
def _decoded(stored: StoredLedger) -> Ledger:
    return _read_ledger(stored)


def _ledger(stored: StoredLedger) -> Ledger:
    plain = StoredLedger(path="", resource_version="", finalizers=(), deleting=False, text=stored.text)
    return _decoded(plain)


def _by_identity(act: Callable[..., Any], of: Callable[..., tuple[object, ...]] = lambda *each: each) -> Any:
    """What it made of these very objects, which are kept as long as this is."""
    known: dict[tuple[int, ...], tuple[object, Any]] = {}

    def remembered(*given: Any) -> Any:
        objects = of(*given)
        key = tuple(map(id, objects))
        found = known.get(key)
        if found is None:
            known[key] = found = (objects, act(*given))
        return found[1]

    return remembered


def _urlencode(query: Mapping[str, str]) -> str:
    return _encoded(tuple(query.items()))


@lru_cache(maxsize=4096)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    return urlencode(query)


class _Answers:
    """In the place of Gauge.metrics: its own answer, of one that differs by its ages alone the last with these."""

    def __init__(self) -> None:
        self._real = Gauge.metrics
        self._known: dict[int, tuple[Gauge, object, str, str]] = {}

    def __get__(self, gauge: Gauge, _: type[Gauge]) -> Callable[[], tuple[int, str]]:
        return lambda: self._answer(gauge)

    def _answer(self, gauge: Gauge) -> tuple[int, str]:
        last, registry = gauge.last, gauge.registrar.last
        if not last.uses or gauge.age_seconds > gauge._limit_seconds:
            return self._real(gauge)
        now = gauge.clock.now()
        recent = [each for each in registry.recycled or () if now - each.at < HOUR]
        shown = (last.uses, last.unreadable, recent, _Same(registry))
        known = self._known.get(id(gauge))
        if known is None or known[1] != shown:
            status, text = self._real(gauge)
            head, begin, _ = text.partition(f"\n{METRIC_SAMPLE_AGE} ")
            rest = text.partition(f"# HELP {METRIC_BUILD_INFO}")[2]
            self._known[id(gauge)] = gauge, shown, f"{head}{begin}", rest
            return status, text
        sample, api = round(gauge.age_seconds, 3), round(gauge.registrar.age_seconds, 3)
        return 200, f"{known[2]}{sample!r}\n{_API_AGE}{api!r}\n# HELP {METRIC_BUILD_INFO}{known[3]}"


@dataclass(frozen=True, eq=False)
class _Same:
    """Equal to what holds the same object, not one that is like it."""

    held: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


class _Readings:
    """Answers of exporters that differ by their ages alone are read once."""

    def __init__(self) -> None:
        self._known: dict[str, telemetry_reading.Reading] = {}

    def __call__(self, text: str) -> telemetry_reading.Reading:
        head, _, tail = text.partition(f"\n{METRIC_SAMPLE_AGE} ")
        age, _, rest = tail.partition("\n")
        known = self._known.get(head) if rest.endswith("\n") else None
        if known is None or not 0 <= float(age) <= telemetry_reading.FRESH_SECONDS:
            known = self._known[head] = telemetry_reading.parse(text)
            return known
        return replace(known, age_seconds=float(age))


@lru_cache(maxsize=50_000)
def _parsed(line: str) -> Sample:
    return _read_sample(0, line)


def _sample(number: int, line: str) -> Sample:
    return _parsed(line)


@lru_cache(maxsize=10_000)
def _spelled(labels: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels) + "}" if labels else ""


def _braces(labels: Mapping[str, str]) -> str:
    return _spelled(tuple(labels.items()))


class Remembered:
    """By the identity of a pod's spec, which is kept as long as this is."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[object, int]] = {}

    def request(self, pod: Pod, resource: str, *, per_unit: int = 1) -> int:
        key = (id(pod.spec), resource, per_unit)
        if key not in self._known:
            self._known[key] = (pod.spec, _request(pod, resource, per_unit=per_unit))
        return self._known[key][1]

    def declared_mib(self, ledger: Ledger, namespace: str, spec: Object) -> int:
        key = (id(spec), namespace, id(ledger))
        if key not in self._known:
            self._known[key] = (spec, _declared_mib(ledger, namespace, spec))
        return self._known[key][1]


@lru_cache(maxsize=64)
def _read_settings(kind: Any, environ: tuple[tuple[str, str], ...]) -> Any:
    return read(kind, dict(environ))


def settings_of(kind: Any, environ: Mapping[str, str]) -> Any:
    """As `read`, once for an environment but for the pod's name."""
    named = _read_settings(kind, tuple(sorted({**environ, "POD_NAME": "any"}.items())))
    return replace(named, pod_name=environ["POD_NAME"])
