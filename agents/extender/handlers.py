"""The extender's two doors: the scheduler's verbs, and what anybody may ask."""

import http.client
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agents import exposition, inspection, verbs
from agents.allocations import Allocations
from agents.binding import Binder
from agents.errors import AgentError
from agents.exposition import Family
from agents.leadership import Leadership
from agents.measures import Counter, Histogram
from agents.mirror import Mirror
from agents.placing import Placing
from agents.serving import SAMPLES, Answer, Request, sentence
from agents.waiting import Waiting
from tenancy.names import METRIC_EXTENDER_REFUSALS, METRIC_EXTENDER_SECONDS, Names

# The mirror's thread comes round several times a second; one that hangs needs a restart.
ALIVE_SECONDS = 60.0


class NotNowError(AgentError):
    """Nothing may be placed now; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """Whether this extender may answer for its scheduler; `measured` is whether the exporters were asked, or need not
    be."""

    mirror: Mirror
    leadership: Leadership
    measured: Callable[[], bool]

    def names(self) -> Names:
        """The ledger's names. Raises NotNowError where nothing may be placed."""
        if problem := self.problem():
            raise NotNowError(problem)
        since, listed_at = self.leadership.since, self.mirror.listed_at
        if since is None:
            raise NotNowError("the scheduler of this pod does not hold the Lease")
        if listed_at is None or listed_at < since:
            raise NotNowError("the pods are being listed, as at every change of the leader")
        if self.mirror.names is None:
            raise NotNowError("no ledger has been read")
        return self.mirror.names

    def problem(self) -> str | None:
        """Why nothing could be placed even by a leader; None where it could."""
        if self.mirror.problem:
            return self.mirror.problem
        if self.mirror.listed_at is None:
            return "the cluster is being listed"
        return None if self.measured() else "the devices are being measured"


class VerbDesk:
    """Answers the scheduler."""

    def __init__(self, readiness: Readiness, placing: Placing, binder: Binder, waiting: Waiting) -> None:
        self.seconds = Histogram(METRIC_EXTENDER_SECONDS, "Time to answer kube-scheduler, by verb.", "verb")
        self.refusals = Counter(METRIC_EXTENDER_REFUSALS, "Requests that placed no pod, by reason.", "reason")
        self._readiness = readiness
        self._placing = placing
        self._binder = binder
        self._waiting = waiting
        self._verbs: Mapping[str, Callable[[bytes, Names], object]] = {
            verbs.FILTER: self._filter,
            verbs.PRIORITIZE: self._prioritize,
            verbs.PREEMPT: self._preempt,
            verbs.BIND: self._bind,
        }

    def answer(self, request: Request) -> Answer:
        """The protocol's answer; errors go into its Error where it has one, and are status 503 where not."""
        verb = request.path.rpartition("/")[2]
        if verb not in self._verbs or request.method != "POST":
            return sentence(http.client.NOT_FOUND, f"there are POST {', '.join(self._verbs)}")
        started = time.perf_counter()
        try:
            content = self._verbs[verb](request.body, self._readiness.names())
        except AgentError as error:
            self.refusals.add(_reason(error, verb))
            if verb not in (verbs.FILTER, verbs.BIND):
                return sentence(http.client.SERVICE_UNAVAILABLE, str(error))
            content = verbs.failed(str(error))
        finally:
            self.seconds.observe(verb, time.perf_counter() - started)
        return Answer(http.client.OK, json.dumps(content).encode())

    def _filter(self, body: bytes, names: Names) -> object:
        query = verbs.read_pod_nodes(body)
        fits = self._placing.fits(query, names)
        uid = query.pod["metadata"]["uid"]
        ask = self._placing.asks.of(uid)
        if fits.nodes:
            self._waiting.forget(uid)
        elif ask is not None and query.nodes:
            self._waiting.refuse(uid, ask, query.nodes)
            self.refusals.add("no_room" if fits.refused else "never_fits")
        return verbs.filtered(fits.nodes, fits.refused, fits.hopeless)

    def _prioritize(self, body: bytes, names: Names) -> object:
        return verbs.scored(self._placing.scores(verbs.read_pod_nodes(body), names))

    def _preempt(self, body: bytes, names: Names) -> object:
        return verbs.preempted(self._placing.victims(verbs.read_pod_victims(body), names))

    def _bind(self, body: bytes, names: Names) -> object:
        self._binder.bind(verbs.read_binding(body), names)
        return verbs.BOUND


def _reason(error: AgentError, verb: str) -> str:
    if isinstance(error, NotNowError):
        return "not_ready"
    return "malformed" if isinstance(error, verbs.VerbError) else f"{verb}_failed"


@dataclass(frozen=True, kw_only=True)
class OpenDesk:
    """Answers everybody: GET /metrics, /healthz, /readyz, /inspect and /inspect/<node>. It changes nothing."""

    readiness: Readiness
    allocations: Allocations
    families: Callable[[], tuple[Family, ...]]
    monotonic: Callable[[], float]

    def answer(self, request: Request) -> Answer:
        path = request.path.rstrip("/")
        if request.method != "GET":
            return sentence(http.client.METHOD_NOT_ALLOWED, "there is nothing but GET")
        if path == "/metrics":
            text = exposition.render_families(self.families())
            return Answer(http.client.OK, text.encode(), SAMPLES)
        if path in ("/healthz", "/readyz"):
            problem = self._hangs() if path == "/healthz" else self.readiness.problem()
            return sentence(http.client.SERVICE_UNAVAILABLE, problem) if problem else sentence(http.client.OK, "ok")
        if path == "/inspect" or path.startswith("/inspect/"):
            return self._inspect(path.removeprefix("/inspect").removeprefix("/"))
        return sentence(http.client.NOT_FOUND, "there are /metrics, /healthz, /readyz, /inspect and /inspect/<node>")

    def _hangs(self) -> str | None:
        silent = self.monotonic() - self.readiness.mirror.alive_at
        return f"the API has not been followed for {silent:.0f} s" if silent > ALIVE_SECONDS else None

    def _inspect(self, node: str) -> Answer:
        usage = self.allocations.usage()
        shown = inspection.nodes(each for each in usage if node in ("", each.node))
        if node and not shown["nodes"]:
            return sentence(http.client.NOT_FOUND, f"{node} is no node with GPU memory to share")
        return Answer(http.client.OK, json.dumps(shown, indent=1).encode())
