"""HTTP handlers for the scheduler's verbs (POST) and for metrics and health (GET)."""

import http.client
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agents.extender import protocol
from agents.extender.bind import Binder
from agents.extender.cache.informers import Informers
from agents.extender.filter import PlacementVerbs
from agents.extender.report import placed_event
from agents.runtime import exposition
from agents.runtime.errors import AgentError
from agents.runtime.exposition import Family, Metric, MetricType
from agents.runtime.http_message import HttpRequest, HttpResponse, text_response
from agents.runtime.http_server import answer_scrape
from agents.runtime.items import Unjudged, attempted
from agents.runtime.log import Log
from agents.runtime.metrics import Counter, Histogram
from tenancy.names import METRIC_EXTENDER_OVERCROWDED, METRIC_EXTENDER_REFUSALS, METRIC_EXTENDER_SECONDS, Names

# If the informers' thread does nothing for this many seconds, /healthz fails and the kubelet restarts the container.
ALIVE_SECONDS = 60.0


class NotReadyError(AgentError):
    """No pod may be placed now, for the reason in the message."""


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """Decides whether this extender may answer the scheduler in its pod.

    `led_since` returns the monotonic time when the leadership of this scheduler began, or None. After it has lost its
    Lease, the extender of the new leader may give the same devices to other pods. `measured` returns True after the
    first scrape of the exporters.
    """

    informers: Informers
    led_since: Callable[[], float | None]
    measured: Callable[[], bool]

    def names(self) -> Names:
        """Returns the names in the ledger. Raises NotReadyError if the extender may place no pod."""
        problem, names = self.refusal(), self.informers.names
        if problem is not None or names is None:
            raise NotReadyError(problem or "no ledger has been read")
        return names

    def refusal(self) -> str | None:
        """Returns the reason why the extender does not answer the requests of the scheduler, or None."""
        since, listed_at = self.led_since(), self.informers.listed_at
        if problem := self.problem():
            return problem
        if since is None:
            return "this pod's scheduler is not the leader"
        if listed_at is None or listed_at < since:
            return "the pods are being relisted, as after every change of the leader"
        return None

    def problem(self) -> str | None:
        """Returns the reason why this extender cannot place pods, or None. The reason does not depend on the leadership
        of the scheduler.
        """
        if self.informers.problem:
            return self.informers.problem
        if self.informers.listed_at is None:
            return "the cluster is being listed"
        return None if self.measured() else "the devices are being measured"


# The metrics of the answers to kube-scheduler.
COUNTED: Mapping[str, Metric] = {
    METRIC_EXTENDER_SECONDS: Metric(
        text="Latency of the answers to kube-scheduler, by verb.", labels=("verb",), kind=MetricType.HISTOGRAM
    ),
    METRIC_EXTENDER_REFUSALS: Metric(
        text="Calls of kube-scheduler after which no pod was placed, by reason.",
        labels=("reason",),
        kind=MetricType.COUNTER,
    ),
    METRIC_EXTENDER_OVERCROWDED: Metric(
        text="Pods with a seat that were placed on memory that other pods use.",
        labels=("pool",),
        kind=MetricType.COUNTER,
    ),
}


class VerbHandler:
    """Answers kube-scheduler's requests."""

    def __init__(self, readiness: Readiness, placing: PlacementVerbs, binder: Binder, log: Log) -> None:
        self.seconds = Histogram(METRIC_EXTENDER_SECONDS, COUNTED[METRIC_EXTENDER_SECONDS].text, "verb")
        self.refusals = Counter(METRIC_EXTENDER_REFUSALS, COUNTED[METRIC_EXTENDER_REFUSALS].text, "reason")
        self._readiness = readiness
        self._placing = placing
        self._binder = binder
        self._log = log
        self.overcrowded = Counter(METRIC_EXTENDER_OVERCROWDED, COUNTED[METRIC_EXTENDER_OVERCROWDED].text, "pool")
        self._verbs: Mapping[str, Callable[[bytes, Names], object]] = {
            protocol.FILTER: self._filter,
            protocol.PREEMPT: self._preempt,
            protocol.BIND: self._bind,
        }

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Returns the answer to a request of the scheduler.

        If a request fails, the field Error of the answer has the error. An answer to preempt has no field Error, so an
        error gives status 503.
        """
        verb = request.path.rpartition("/")[2]
        if verb not in self._verbs or request.method != "POST":
            return text_response(http.client.NOT_FOUND, f"there are POST {', '.join(self._verbs)}")
        started = time.perf_counter()
        content = attempted(lambda: self._verbs[verb](request.body, self._readiness.names()))
        self.seconds.observe(verb, time.perf_counter() - started)
        if isinstance(content, Unjudged):
            self.refusals.add("not_ready" if isinstance(content.error, NotReadyError) else f"{verb}_failed")
            if verb not in (protocol.FILTER, protocol.BIND):
                return text_response(http.client.SERVICE_UNAVAILABLE, content.why)
            content = protocol.error_result(content.why)
        return HttpResponse(http.client.OK, json.dumps(content).encode())

    def _filter(self, body: bytes, names: Names) -> object:
        query = protocol.read_filter_request(body)
        answer = self._placing.fits(query, names)
        if query.nodes and not answer.nodes:
            held = self._placing.waiting.is_held(query.pod.uid)
            self.refusals.add("held" if held else "no_room" if answer.refused else "never_fits")
        return protocol.filter_result(answer.nodes, answer.refused, answer.hopeless)

    def _preempt(self, body: bytes, names: Names) -> object:
        return protocol.preemption_result(self._placing.victims(protocol.read_preempt_request(body), names))

    def _bind(self, body: bytes, names: Names) -> object:
        binding = protocol.read_bind_request(body)
        pod = self._binder.bind(binding, names)
        waited = self._placing.waiting.of(binding.uid)
        short = [each for each in waited.short if each.node == binding.node] if waited else []
        if short:
            self.overcrowded.add(short[0].pool)
        self._log.info("placed", pod=f"{binding.namespace}/{binding.name}", why=pod.why)
        self._placing.tell(placed_event(binding.reference, pod.why, short))
        return protocol.BOUND


@dataclass(frozen=True, kw_only=True)
class StatusHandler:
    """Answers GET /metrics, /healthz and /readyz to any client. The answers to these requests contain no
    names of pods.
    """

    readiness: Readiness
    families: Callable[[], tuple[Family, ...]]
    monotonic: Callable[[], float]

    def answer(self, request: HttpRequest) -> HttpResponse:
        if request.path != "/readyz":
            return answer_scrape(self, request)
        problem = self.readiness.problem()
        return text_response(http.client.SERVICE_UNAVAILABLE if problem else http.client.OK, problem or "ok")

    def metrics(self) -> tuple[int, str]:
        return http.client.OK, exposition.render_families(self.families())

    def health(self) -> tuple[int, str]:
        silent = self.monotonic() - self.readiness.informers.informer.alive_at
        if silent > ALIVE_SECONDS:
            return http.client.SERVICE_UNAVAILABLE, f"the API has not been followed for {silent:.0f} s\n"
        return http.client.OK, "ok\n"
