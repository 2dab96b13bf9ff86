"""guard: lowers the oom_score_adj of protected workloads, so that the kernel kills a disposable workload first.

The guard checks the node's processes twice a second, so that it protects a restarted container within half a second.
The guard never raises an oom_score_adj. A lowered oom_score_adj stays after the guard's end, and child processes
inherit it.
"""

import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agents.guard.follow import AdjustmentRule, PodWatcher, ProtectedPod
from agents.guard.oom_score_adj import AdjOutcome, lower_adj
from agents.guard.processes import ProcessIndex
from agents.kube.client import Api, in_cluster
from agents.kube.events import Event, EventWriter, Recorder
from agents.node.cgroup import Container
from agents.runtime import exposition, items
from agents.runtime.clock import Clock
from agents.runtime.errors import StoppedError
from agents.runtime.exposition import Metric, Sample
from agents.runtime.http_server import MetricsServer
from agents.runtime.items import ItemProblems, Unjudged, judged
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog
from agents.runtime.settings import PORT, comma_separated, read, text, variable, whole
from tenancy import names

PASS_SECONDS = 0.5
# A pass of the guard takes milliseconds. If no pass has ended for this time, the current pass hangs in a system call.
STALE_SECONDS = 15.0

METRICS: Mapping[str, Metric] = {
    **items.METRICS,
    names.METRIC_GUARD_ADJ: Metric(
        text="The highest oom_score_adj that the guard leaves to the pod's processes.",
        labels=("namespace", "pod", "pod_uid"),
    ),
    names.METRIC_GUARD_HELD: Metric(
        text="The number of the pod's processes with an oom_score_adj that is low enough.",
        labels=("namespace", "pod", "pod_uid"),
    ),
    names.METRIC_GUARD_UNHELD: Metric(
        text="The number of the pod's processes with an oom_score_adj that the guard could not lower.",
        labels=("namespace", "pod", "pod_uid"),
    ),
    names.METRIC_GUARD_API_AGE: Metric(text="Seconds since the API last reported which pods to protect."),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """PROTECTED lists <namespace>/<PriorityClass>. ALLOCATABLE_MIB is what the pool declares of each node, and
    VICTIM_REQUEST_MIB the largest request of a disposable pod.
    """

    port: int = variable(PORT)
    node_name: str = variable(text)
    pod_name: str = variable(text)
    protected: tuple[str, ...] = variable(comma_separated)
    allocatable_mib: int = variable(whole(1, 2**30))
    victim_request_mib: int = variable(whole(0, 2**30))


def start(environ: Mapping[str, str], log: Log) -> int:
    """Serves until SIGTERM, then returns the exit status 0. Raises AgentError."""
    settings = read(Settings, environ)
    clock, endpoint, proc = Clock(), in_cluster(environ), Path("/proc")
    rule = rule_of(settings, proc)
    follower = PodWatcher(api=Api(endpoint, clock=clock), node=settings.node_name, rule=rule, clock=clock, log=log)
    recorder = Recorder(api=Api(endpoint, clock=clock), controller=names.GUARD, instance=settings.pod_name)
    scan = ProcessIndex(clock, proc).scan
    events = EventWriter(recorder=recorder, clock=clock, log=log)
    guard = ProcessGuard(
        scan=scan, hold=partial(lower_adj, proc), follower=follower, tell=events.put, clock=clock, log=log
    )
    guard.threads = tuple(
        threading.Thread(target=keep, name=name, daemon=True)
        for name, keep in (
            ("following pods", follower.informer.run),
            ("guarding", guard.keep_passing),
            ("recording events", events.keep),
        )
    )
    for thread in guard.threads:
        thread.start()
    with MetricsServer(settings.port, guard) as server:
        log.info("guards", protected=settings.protected, memory_mib=rule.memory_mib, swap_mib=rule.swap_mib)
        try:
            server.serve_forever()
        except StoppedError:
            log.info("stopped by SIGTERM")
    return 0


def rule_of(settings: Settings, proc: Path) -> AdjustmentRule:
    """Returns the AdjustmentRule for this machine, before the guard has read its Node."""
    lines = (line.split() for line in (proc / "meminfo").read_text(encoding="ascii").splitlines())
    mib = {line[0]: int(line[1]) // 1024 for line in lines}
    return AdjustmentRule(
        members=frozenset(settings.protected),
        allocatable_mib=settings.allocatable_mib,
        memory_mib=mib["MemTotal:"],
        victim_request_mib=settings.victim_request_mib,
        swap_mib=mib.get("SwapTotal:", 0),
    )


@dataclass(frozen=True, kw_only=True)
class ProcessCounts:
    """The numbers of processes of a protected pod after a pass.

    `held` counts the processes with at most the permitted oom_score_adj. `unheld` counts all other processes of the
    pod. `lowered` has the ids of the containers in which the guard lowered an oom_score_adj. `problem` is the reason if
    the guard could not lower an oom_score_adj.
    """

    pod: ProtectedPod
    held: int = 0
    unheld: int = 0
    lowered: frozenset[str] = frozenset()
    problem: str | None = None


@dataclass(frozen=True)
class GuardPass:
    """The result of the guard's last pass. `at` is the time of the pass in monotonic seconds."""

    at: float
    tallies: tuple[ProcessCounts, ...] = ()
    problem: str | None = "no pass yet"


@dataclass(kw_only=True)
class ProcessGuard:
    """Checks the processes of the node. One thread runs `keep_passing`, and any thread may call the other methods.

    `health` returns an error if a thread of `threads` has ended. `unread` has the processes with an unreadable control
    group.
    """

    scan: Callable[[ItemProblems], Mapping[int, Container]]
    hold: Callable[[int, Container, int], AdjOutcome]
    follower: PodWatcher
    tell: Callable[[Event], None]
    clock: Clock
    log: Log
    threads: tuple[threading.Thread, ...] = ()
    last: GuardPass = field(init=False)
    unread: ItemProblems = field(init=False)
    _problem: ProblemLog = field(init=False)

    def __post_init__(self) -> None:
        self.last = GuardPass(self.clock.monotonic())
        self.unread = ItemProblems(log=self.log)
        self._problem = ProblemLog(log=self.log, failing="no pass", recovered="passes again")

    def keep_passing(self) -> None:
        while True:
            self.pass_once()
            self.clock.sleep(PASS_SECONDS)

    def pass_once(self) -> GuardPass:
        """For each process of a protected pod, lowers the oom_score_adj if it is too high.

        Reports the changes, and stores the result of the pass in `last`.
        """
        known = {tally.pod.uid: tally for tally in self.last.tallies}
        try:
            tallies, problem = tuple(self._tallies(self.follower.last or {}, known)), None
        except OSError as error:
            tallies, problem = (), str(error)
        self.last = GuardPass(self.clock.monotonic(), tallies, problem)
        self._problem.report(problem)
        self._report(known)
        return self.last

    def metrics(self) -> tuple[int, str]:
        """Returns the status and the body of GET /metrics.

        The status is 200 only if the last pass is recent and had no error, and if the pods are known.
        """
        status, body = self.health()
        if status != http.client.OK:
            return status, body
        problem = self.last.problem
        if self.follower.last is None:
            problem = "the API has not reported yet which pods to protect"
        if problem:
            return http.client.SERVICE_UNAVAILABLE, f"{problem}\n"
        return http.client.OK, exposition.render(self._samples(self.last.tallies), METRICS)

    def health(self) -> tuple[int, str]:
        """Returns the status and the body of GET /healthz.

        The status is 503 if a thread has ended or the guard makes no more passes.
        """
        ended = [thread.name for thread in self.threads if not thread.is_alive()]
        if ended:
            return http.client.SERVICE_UNAVAILABLE, f"{', '.join(ended)} has ended with an error\n"
        age_seconds = self.clock.monotonic() - self.last.at
        if age_seconds <= STALE_SECONDS:
            return http.client.OK, "ok\n"
        return http.client.SERVICE_UNAVAILABLE, f"the last pass was {age_seconds:.0f} s ago\n"

    def _tallies(
        self, protected: Mapping[str, ProtectedPod], before: Mapping[str, ProcessCounts]
    ) -> Iterator[ProcessCounts]:
        processes: dict[str, list[tuple[int, Container]]] = {uid: [] for uid in protected}
        for pid, container in self.scan(self.unread).items():
            if container.pod_uid in processes:
                processes[container.pod_uid].append((pid, container))
        for uid, members in processes.items():
            pod = protected[uid]
            yield self._tally(pod, members, before.get(uid, ProcessCounts(pod=pod)).lowered)

    def _tally(
        self, pod: ProtectedPod, members: list[tuple[int, Container]], lowered_before: frozenset[str]
    ) -> ProcessCounts:
        held, unheld, lowered, problem = 0, 0, set[str](), None
        for pid, container in members:
            found = judged(partial(self.hold, pid, container, pod.adj))
            if isinstance(found, Unjudged):
                problem, unheld = found.why, unheld + 1
                continue
            held += found is not AdjOutcome.GONE
            if found is AdjOutcome.LOWERED:
                lowered.add(container.id)
        there = {container.id for _, container in members}
        return ProcessCounts(
            pod=pod, held=held, unheld=unheld, lowered=lowered_before & there | lowered, problem=problem
        )

    def _report(self, before: Mapping[str, ProcessCounts]) -> None:
        """Reports each container only once, because the guard must lower some values often. Each exec probe starts a
        process with the container's value, and some programs raise their own value.
        """
        for tally in self.last.tallies:
            pod, former = tally.pod, before.get(tally.pod.uid)
            fields = {"namespace": pod.namespace, "pod": pod.name, "oom_score_adj": pod.adj}
            if started := tally.lowered - (former.lowered if former else frozenset()):
                self.log.info("lowered", containers=len(started), **fields)
                note = f"the oom_score_adj of its processes is kept at {pod.adj}: a disposable pod is killed first"
                self._record(pod, names.EVENT_GUARDED, note, warning=False)
            if tally.problem and (former is None or former.problem is None):
                self.log.error(tally.problem, processes=tally.unheld, **fields)
                self._record(pod, names.EVENT_UNGUARDED, tally.problem, warning=True)

    def _record(self, pod: ProtectedPod, reason: str, note: str, *, warning: bool) -> None:
        self.tell(Event(regarding=pod.reference, reason=reason, note=note, action="Guard", warning=warning))

    def _samples(self, tallies: tuple[ProcessCounts, ...]) -> Iterator[Sample]:
        for tally in tallies:
            pod = tally.pod
            labels = {"namespace": pod.namespace, "pod": pod.name, "pod_uid": pod.uid}
            yield Sample(name=names.METRIC_GUARD_ADJ, labels=labels, value=pod.adj)
            yield Sample(name=names.METRIC_GUARD_HELD, labels=labels, value=tally.held)
            yield Sample(name=names.METRIC_GUARD_UNHELD, labels=labels, value=tally.unheld)
        yield from items.samples(self.follower.problems, self.unread)
        yield Sample(name=names.METRIC_GUARD_API_AGE, value=self.follower.informer.age_seconds)
