"""extender: chooses devices for the kube-scheduler in the same pod, which sends plain HTTP to 127.0.0.1.

The extender answers kube-scheduler only while the scheduler in its pod leads. When its scheduler becomes the leader,
the extender first relists all objects. While the extender does not answer, pods wait. /metrics, /healthz and
/readyz are on another port.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from agents.extender.bind import TIMEOUT_SECONDS, Binder, ClientPool
from agents.extender.cache.cache import Cache
from agents.extender.cache.drift import Comparer
from agents.extender.cache.informers import Informers
from agents.extender.cache.measured import ReadingRefresher
from agents.extender.filter import PlacementVerbs
from agents.extender.handlers import Readiness, StatusHandler, VerbHandler
from agents.extender.leader import LeaseWatcher
from agents.extender.metrics import ExtenderMetrics
from agents.extender.report import lost_event
from agents.extender.waiting import WaitingPods
from agents.kube import transport
from agents.kube.client import ATTEMPTS, Api, in_cluster
from agents.kube.events import EventWriter, Recorder
from agents.kube.paths import api_path
from agents.kube.transport import Https
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError, StoppedError
from agents.runtime.http_server import Server
from agents.runtime.log import Log
from agents.runtime.settings import PORT, read, text, variable, whole
from agents.telemetry import client
from agents.telemetry.client import NodeTelemetry, Scraper
from tenancy.devices.allocate import Scoring
from tenancy.names import RESOURCE_API, RETRY_ANNOTATION, SCHEDULER

LOOPBACK = "127.0.0.1"
_CONNECTIONS = 512  # kube-scheduler binds many pods at the same time over separate connections.
_IDLE_SECONDS = 120.0  # The seconds after which kube-scheduler has closed an idle connection.
_BODY_BYTES = 16 * 2**20  # The maximum size of a request from kube-scheduler in bytes.


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The server on VERBS_PORT listens on 127.0.0.1, and the server on HTTP_PORT on every address.

    LEASE is the scheduler's Lease as namespace/name. LEASE is empty if the scheduler runs without leader election.
    """

    verbs_port: int = variable(PORT)
    http_port: int = variable(PORT)
    lease: str = variable(str)
    scoring: str = variable(Scoring)
    hold_seconds: int = variable(whole(0, 3_600))
    ledger_namespace: str = variable(text)
    exporter_namespace: str = variable(text)
    exporter_port: int = variable(PORT)
    pod_name: str = variable(text)


def start(environ: Mapping[str, str], log: Log) -> int:
    """Serves until SIGTERM, then returns the exit status 0. Raises AgentError."""
    settings = read(Settings, environ)
    endpoint, clock = in_cluster(environ), Clock()

    def connect(timeout_seconds: float, attempts: int) -> Api:
        https = Https(endpoint, timeout_seconds=timeout_seconds)
        return Api(endpoint, clock=clock, attempts=attempts, transport=https)

    extender = Extender(settings, connect, clock, log)
    ended: SimpleQueue[threading.Thread] = SimpleQueue()
    with (
        Server(
            LOOPBACK,
            settings.verbs_port,
            extender.verb_handler.answer,
            connections=_CONNECTIONS,
            idle_seconds=_IDLE_SECONDS,
            body_bytes=_BODY_BYTES,
        ) as verbs,
        Server("", settings.http_port, extender.status_handler.answer) as questions,
    ):
        for run in (*extender.threads(), questions.serve_forever):
            threading.Thread(target=_run, args=(run, verbs, ended), daemon=True).start()
        log.info("serves", verbs_port=settings.verbs_port, http_port=settings.http_port)
        try:
            verbs.serve_forever()
        except StoppedError:
            log.info("stopped by SIGTERM")
            return 0
        ended.get().join()  # until it has printed its traceback
    raise AgentError(
        "a thread has ended with an error (see its traceback): exiting, so that the kubelet restarts the container"
    )


def _run(part: Callable[[], None], verbs: Server, ended: "SimpleQueue[threading.Thread]") -> None:
    """Runs a loop that should never end.

    If the loop ends, stops the server for kube-scheduler's requests, so that the extender exits.
    """
    try:
        part()
    finally:
        ended.put(threading.current_thread())
        verbs.shutdown()


class Extender:
    """Creates and connects the parts of the extender.

    `connect` takes a timeout in seconds and a number of attempts, and returns an API client.
    """

    def __init__(
        self,
        settings: Settings,
        connect: Callable[[float, int], Api],
        clock: Clock,
        log: Log,
        *,
        scraper: Scraper | None = None,
        more_room: threading.Event | None = None,
    ) -> None:
        api = partial(connect, transport.TIMEOUT_SECONDS, ATTEMPTS)
        hasty = partial(connect, TIMEOUT_SECONDS, 1)
        self._clock = clock
        self._log = log
        self._settings = settings
        self._namespace = settings.ledger_namespace
        self._scraper = scraper or Scraper()
        self._claims, self._telemetry = api(), api()
        cache = Cache(Scoring(settings.scoring))
        self.waiting = WaitingPods(
            cache=cache,
            ledger=lambda: self.informers.ledger,
            nudge=self._nudge,
            serves=lambda: self._readiness.refusal() is None,
            clock=clock,
            log=log,
            more_room=more_room or threading.Event(),
        )
        self.informers = Informers(
            api=api(),
            cache=cache,
            ledger_namespace=self._namespace,
            grown=self.waiting.grown,
            clock=clock,
            log=log,
        )
        self._lease = self._watched(settings, api())
        self._events = EventWriter(
            recorder=Recorder(api=api(), controller=SCHEDULER, instance=settings.pod_name), clock=clock, log=log
        )
        placing = PlacementVerbs(
            informers=self.informers,
            cache=cache,
            waiting=self.waiting,
            hold_seconds=settings.hold_seconds,
            led_since=self._led_since,
            tell=self._events.put,
            clock=clock,
        )
        binder = Binder(
            connections=ClientPool(hasty, clock),
            cache=cache,
            waiting=self.waiting,
            clock=clock,
        )
        self.measured = ReadingRefresher(
            read=self._measure, cache=cache, grown=self.waiting.grown, clock=clock, log=log
        )
        self.comparer = Comparer(
            lost=lambda pod: self._events.put(lost_event(pod)),
            cache=cache,
            clock=clock,
            log=log,
        )
        self._readiness = readiness = Readiness(
            informers=self.informers,
            led_since=self._led_since,
            measured=lambda: self.measured.tried,
        )
        self.verb_handler = VerbHandler(readiness, placing, binder, log)
        series = ExtenderMetrics(
            readiness=readiness,
            verbs=self.verb_handler,
            cache=cache,
            drift=self.comparer.counts,
            ages=self.measured.ages,
            waiting=self.waiting,
        )
        self.status_handler = StatusHandler(readiness=readiness, families=series.families, monotonic=clock.monotonic)

    def threads(self) -> Iterable[Callable[[], None]]:
        """Yields the endless loops of the extender. The caller runs each loop in a thread of its own."""
        yield from (
            self.informers.informer.run,
            self.waiting.keep,
            self.comparer.keep,
            self._events.keep,
        )
        yield self.measured.keep
        if self._lease:
            yield self._lease.informer.run

    def _led_since(self) -> float | None:
        return self._lease.since if self._lease else 0.0

    def _watched(self, settings: Settings, api: Api) -> LeaseWatcher | None:
        if not settings.lease:
            return None
        namespace, _, name = settings.lease.partition("/")
        return LeaseWatcher(
            api=api,
            namespace=namespace,
            name=name,
            holder=settings.pod_name,
            gained=self.informers.renew,
            clock=self._clock,
            log=self._log,
        )

    def _nudge(self) -> None:
        """Changes an annotation of an unused ResourceClaim, so that kube-scheduler retries pending pods."""
        path = api_path(RESOURCE_API, "namespaces", self._namespace, "resourceclaims", SCHEDULER)
        moment = self._clock.now().isoformat()
        self._claims.merge_patch(path, {"metadata": {"annotations": {RETRY_ANNOTATION: moment}}})

    def _measure(self) -> Iterable[NodeTelemetry] | None:
        ledger = self.informers.ledger
        if ledger is None or self.informers.listed_at is None:
            return None
        return client.read(
            client.list_exporters(self._telemetry, self._settings.exporter_namespace),
            ledger,
            self.informers.nodes,
            port=self._settings.exporter_port,
            scraper=self._scraper,
            monotonic=self._clock.monotonic,
        )
