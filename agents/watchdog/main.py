"""watchdog: recycles the smallest set of over-budget pods on a device that is under its floor (record 0000).

Recycling is contract enforcement, not priority: who stays within what it declared is never touched, and without
pressure nobody is. What cannot be believed is no reason to act, and a run that ends so is no success.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime

from agents.kube.client import Api, ApiError, in_cluster
from agents.kube.events import Recorder
from agents.kube.journal import Journal
from agents.kube.nodes import Node, read_nodes
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.settings import SECONDS, flag, listed, read, variable, whole
from agents.telemetry import sampling
from agents.telemetry.reading import FRESH_SECONDS, Trouble
from agents.telemetry.sampling import UnsoundError
from agents.watchdog import evict
from agents.watchdog.decide import HOUR, decide
from agents.watchdog.evict import EvictionResult
from agents.watchdog.history import Recycles
from agents.watchdog.pods import read_pods
from agents.watchdog.report import Reporter
from agents.watchdog.types import Decision, Limits, PassInput, PassState, Recycled, Target
from tenancy import names
from tenancy.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Settings(sampling.Settings):
    """DRY_RUN tells what would be done. TENANTS are the namespaces where pods may be recycled. DELETE_BLOCKED deletes a
    pod whose eviction a disruption budget refuses; RECYCLE_BARE_PODS ends pods that nothing brings back."""

    tenants: tuple[str, ...] = variable(listed)
    minimum_age_seconds: int = variable(SECONDS)
    cool_down_seconds: int = variable(SECONDS)
    evictions_per_hour: int = variable(whole(1, 100_000))
    delete_blocked: bool = variable(flag)
    recycle_bare_pods: bool = variable(flag)

    @property
    def limits(self) -> Limits:
        return Limits(
            minimum_age_seconds=self.minimum_age_seconds,
            cool_down_seconds=self.cool_down_seconds,
            recycles_per_hour=self.evictions_per_hour,
            bare_pods=self.recycle_bare_pods,
            tenants=frozenset(self.tenants),
        )


def start(environ: Mapping[str, str], log: Log) -> int:
    """The exit status of a run under `environ`. Raises AgentError."""
    settings = read(Settings, environ)
    clock = Clock()
    with closing(Api(in_cluster(environ), clock=clock)) as api:
        return run(settings, api, clock, log)


def run(settings: Settings, api: Api, clock: Clock, log: Log) -> int:
    """0 if the last pass could judge every device and do what it wanted, else 1. Raises AgentError."""
    watchdog = WatchdogRun(settings=settings, api=api, clock=clock, log=log)
    return sampling.run(settings, clock, log, watchdog.take, lambda: watchdog.unsettled)


@dataclass(kw_only=True)
class WatchdogRun:
    """One run. `memory` is what a pass leaves to the next, `rehearsed` what a dry run would have recycled."""

    settings: Settings
    api: Api
    clock: Clock
    log: Log
    memory: PassState = field(default_factory=PassState)
    rehearsed: tuple[Recycled, ...] = ()
    unsettled: bool = False

    def __post_init__(self) -> None:
        self.recorder = Recorder(api=self.api, controller=names.WATCHDOG, instance=self.settings.pod_name)
        self.recycles = Recycles(
            journal=Journal(api=self.api, namespace=self.settings.ledger_namespace, name=names.journal(names.WATCHDOG)),
            kept_seconds=max(int(HOUR.total_seconds()), self.settings.cool_down_seconds),
        )
        self.reported: set[tuple[str, str]] = set()

    def take(self) -> None:
        """One pass: looks, decides, tells and acts. Raises AgentError, UnsoundError where it could not judge."""
        before, self.memory, self.unsettled = self.memory, PassState(), False  # a pass that fails is no sample
        ledger = sampling.read_ledger(self.settings, self.api, self.log)
        if ledger is None:
            return
        nodes = read_nodes(self.api)
        began = self.clock.monotonic()
        snapshot = self._look(ledger, nodes, before)
        now = self.api.time or self.clock.now()
        decision = decide(snapshot, now)
        self.memory, self.unsettled = decision.memory, decision.unsettled
        reporter = Reporter(log=self.log, recorder=self.recorder, resource=ledger.names.gpumem, reported=self.reported)
        reporter.report(decision)
        self._recycle(reporter, decision, now, began)
        reporter.warn(decision, {node.name: node for node in nodes}, now, cap=self.settings.evictions_per_hour)
        _check(decision)

    def _look(self, ledger: Ledger, nodes: Sequence[Node], before: PassState) -> PassInput:
        readings = sampling.read_telemetry(self.settings, self.api, self.clock, ledger, nodes)
        measured = dict.fromkeys(reading.node for reading in readings if reading.problem is None)
        pods = [pod for node in measured for pod in read_pods(self.api, node, ledger)]
        recycled = self.rehearsed if self.settings.dry_run else self.recycles.read()
        return PassInput(
            at=self.clock.monotonic(),
            local_now=self.clock.now(),
            readings=readings,
            pods=pods,
            recycled=recycled,
            limits=self.settings.limits,
            on_record=ledger.tenants_without_budget,
            memory=before,
        )

    def _recycle(self, reporter: Reporter, decision: Decision, now: datetime, began: float) -> None:
        """All of it is written down before any of it is done: of two watchdogs one gets to do it."""
        wanted = [
            (verdict, target, Recycled(at=now, workload=target.workload, pods=tuple(pod.uid for pod in target.pods)))
            for verdict in decision.verdicts
            for target in verdict.recycle
        ]
        entries = [entry for _, _, entry in wanted]
        if not entries:
            return
        if self.settings.dry_run:
            self.rehearsed = (*self.rehearsed, *entries)
            for verdict, target, _ in wanted:
                reporter.rehearsed(verdict, target, now)
        elif self.recycles.reserve(entries, now):
            for done, (verdict, target, entry) in enumerate(wanted):
                if self.clock.monotonic() - began > FRESH_SECONDS:
                    self.recycles.withdraw(entries[done:])
                    raise UnsoundError("nothing is recycled: the API took so long that the sample is stale")
                act = self._act(target, entries[done:])
                reporter.acted(verdict, target, act, entry.at)
        else:
            self.log.warning("another watchdog run has recycled; the next pass decides again")

    def _act(self, target: Target, reserved: Sequence[Recycled]) -> EvictionResult:
        """`reserved` are the entries of this target and of those that come after it."""
        try:
            act = evict.recycle(self.api, target, delete_blocked=self.settings.delete_blocked)
        except ApiError as error:
            self.recycles.withdraw(reserved if error.status is not None else reserved[1:])  # it may have been done
            raise
        if not act.outcome.done:
            self.recycles.withdraw(reserved[:1])
        return act


def _check(decision: Decision) -> None:
    """Raises UnsoundError. A missing exporter has an alert of its own: Prometheus misses it as well."""
    problems = [f"{each.node}: {each.problem}" for each in decision.blind if each.trouble is not Trouble.MISSING]
    problems += [
        f"{verdict.node}: the hourly cap is reached, GPU {verdict.device.gpu} lacks {verdict.missing_mib} MiB"
        for verdict in decision.verdicts
        if verdict.capped
    ]
    if problems:
        raise UnsoundError("; ".join(problems))
