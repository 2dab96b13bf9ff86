"""watchdog: recycles the smallest set of over-budget pods on a device that is under its floor (record 0000).

Recycling is contract enforcement, not priority: who stays within what it declared is never touched, and without
pressure nobody is. What cannot be believed is no reason to act there, and is told there: that a run completes says that
the watchdog is alive, and no more.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime

from agents.kube.client import Api, in_cluster
from agents.kube.events import Recorder
from agents.kube.journal import Journal
from agents.kube.nodes import Node, read_nodes
from agents.kube.pods import PODS, UNSCHEDULED, PodError, waiting_seat
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.settings import SECONDS, flag, listed, read, variable, whole
from agents.telemetry import sampling
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.reading import FRESH_SECONDS
from agents.telemetry.sampling import UnsoundError
from agents.watchdog import evict
from agents.watchdog.caps import HOUR
from agents.watchdog.decide import decide
from agents.watchdog.evict import EvictionOutcome, EvictionResult, Manner
from agents.watchdog.history import Recycles
from agents.watchdog.pods import GpuPod, read_pods
from agents.watchdog.report import Reporter
from agents.watchdog.seats import ripe
from agents.watchdog.types import (
    Decision,
    DeviceVerdict,
    HourlyCaps,
    Limits,
    PassInput,
    PassState,
    Recycled,
    Refused,
    Target,
)
from tenancy import names
from tenancy.devices.waiting import WaitingSeat
from tenancy.ledger import Ledger
from tenancy.units import MIB


@dataclass(frozen=True, kw_only=True)
class Settings(sampling.Settings):
    """DRY_RUN tells what would be done. TENANTS are the namespaces where pods may be recycled, EVICTIONS_PER_HOUR so
    often each. GRACE_SECONDS is the longest grace of a recycled pod, WAITING_SECONDS how long a pod waits for its seat
    before others are recycled for it. DELETE_BLOCKED deletes a pod whose eviction a disruption budget refuses;
    RECYCLE_BARE_PODS ends pods that nothing brings back."""

    tenants: tuple[str, ...] = variable(listed)
    minimum_age_seconds: int = variable(SECONDS)
    cool_down_seconds: int = variable(SECONDS)
    grace_seconds: int = variable(SECONDS)
    waiting_seconds: int = variable(SECONDS)
    evictions_per_hour: int = variable(whole(1, 100_000))
    node_evictions_per_hour: int = variable(whole(1, 100_000))
    total_evictions_per_hour: int = variable(whole(1, 100_000))
    delete_blocked: bool = variable(flag)
    recycle_bare_pods: bool = variable(flag)

    @property
    def limits(self) -> Limits:
        return Limits(
            minimum_age_seconds=self.minimum_age_seconds,
            cool_down_seconds=self.cool_down_seconds,
            grace_seconds=self.grace_seconds,
            caps=HourlyCaps(
                tenant=self.evictions_per_hour, node=self.node_evictions_per_hour, total=self.total_evictions_per_hour
            ),
            waiting_seconds=self.waiting_seconds,
            bare_pods=self.recycle_bare_pods,
            tenants=frozenset(self.tenants),
        )

    @property
    def manner(self) -> Manner:
        return Manner(grace_seconds=self.grace_seconds, delete_blocked=self.delete_blocked)


def start(environ: Mapping[str, str], log: Log) -> int:
    """The exit status of a run under `environ`. Raises AgentError."""
    settings = read(Settings, environ)
    clock = Clock()
    with closing(Api(in_cluster(environ), clock=clock)) as api:
        return run(settings, api, clock, log)


def run(settings: Settings, api: Api, clock: Clock, log: Log) -> int:
    """0 if the last pass was one, whatever it found: what it could not judge or do is reported where it belongs. Else
    1. Raises AgentError."""
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
            log=self.log,
        )
        self.reported: set[tuple[str, str]] = set()

    def take(self) -> None:
        """One pass: looks, decides, tells and acts. Raises AgentError, UnsoundError where the pass is worthless."""
        before, self.memory, self.unsettled = self.memory, PassState(), False  # a pass that fails is no sample
        ledger = sampling.read_ledger(self.settings, self.api, self.log)
        if ledger is None:
            return
        nodes = read_nodes(self.api)
        began = self.clock.monotonic()
        snapshot = self._look(ledger, nodes, before)
        now = self._now()
        decision = decide(snapshot, now)
        self.memory, self.unsettled = decision.memory, decision.unsettled
        reporter = Reporter(log=self.log, recorder=self.recorder, resource=ledger.names.gpumem, reported=self.reported)
        reporter.report(decision)
        self._recycle(reporter, decision, now, began)
        reporter.warn(decision, {node.name: node for node in nodes}, now)
        if decision.problem:
            raise UnsoundError(decision.problem)

    def _now(self) -> datetime:
        return self.api.time or self.clock.now()

    def _look(self, ledger: Ledger, nodes: Sequence[Node], before: PassState) -> PassInput:
        readings = sampling.read_telemetry(self.settings, self.api, self.clock, ledger, nodes)
        seats = ripe(self._seats(ledger), self._now(), self.settings.waiting_seconds)
        wanted = dict.fromkeys(each.node for each in readings if _pressed(each) or _waited_for(each, seats))
        pods = [pod for node in wanted for pod in self._pods(node, ledger)]
        if not self.settings.dry_run:
            self.recycles.read()
        return PassInput(
            at=self.clock.monotonic(),
            local_now=self.clock.now(),
            readings=readings,
            pods=pods,
            recycled=self.rehearsed if self.settings.dry_run else self.recycles.recycled,
            refused=self.recycles.refused,
            seats=seats,
            limits=self.settings.limits,
            on_record=ledger.tenants_without_budget,
            memory=before,
        )

    def _seats(self, ledger: Ledger) -> Iterator[WaitingSeat]:
        """The pods that wait for their seats; one that cannot be read is none."""
        for item in self.api.items(PODS, **UNSCHEDULED):
            try:
                seat = waiting_seat(item, ledger)
            except PodError as error:
                self.log.warning(str(error))
                continue
            if seat is not None:
                yield seat

    def _pods(self, node: str, ledger: Ledger) -> Sequence[GpuPod]:
        return list(read_pods(self.api, node, ledger, self.log))

    def _recycle(self, reporter: Reporter, decision: Decision, now: datetime, began: float) -> None:
        """All of it is written down before any of it is done: of two watchdogs one gets to do it."""
        wanted = [
            _Wanted(verdict, target, _entry(verdict, target, now))
            for verdict in decision.verdicts
            for target in verdict.recycle
        ]
        if not wanted:
            return
        if self.settings.dry_run:
            self.rehearsed = (*self.rehearsed, *(each.entry for each in wanted))
            for each in wanted:
                reporter.rehearsed(each.verdict, each.target, now)
        elif self.recycles.reserve([each.entry for each in wanted], now):
            results = self._act(wanted, now, began)
            for each, result in zip(wanted, results, strict=False):
                reporter.acted(each.verdict, each.target, result, now)
            self._keep_samples(decision, wanted, results)
            if len(results) < len(wanted):
                raise UnsoundError("not all is recycled: the API took so long that the sample is stale")
        else:
            self.log.warning("another watchdog run has recycled; the next pass decides again")

    def _act(self, wanted: Sequence["_Wanted"], now: datetime, began: float) -> Sequence[EvictionResult]:
        """What became of each, in their order; fewer where the sample grew stale. However it ends, the journal is left
        with what was done, or may have been, and with who refused."""
        results: list[EvictionResult] = []
        try:
            for each in wanted:
                if self.clock.monotonic() - began > FRESH_SECONDS:
                    break
                results.append(evict.recycle(self.api, each.target, self.settings.manner))
        finally:
            acted = list(zip(wanted, results, strict=False))
            done = [each.entry for each, result in acted if result.outcome.may_be_done]
            refused = [
                Refused(at=now, workload=each.target.workload, why=result.detail)
                for each, result in acted
                if result.outcome in (EvictionOutcome.BLOCKED, EvictionOutcome.REFUSED)
            ]
            self.recycles.settle(done, refused)
        return results

    def _keep_samples(self, decision: Decision, wanted: Sequence["_Wanted"], results: Sequence[EvictionResult]) -> None:
        """A device on which nothing was done needs no two new samples: the next one may choose without who refused."""
        served = {
            (each.verdict.node, each.verdict.device.uuid)
            for each, result in zip(wanted, results, strict=False)
            if result.outcome.may_be_done
        }
        kept = {
            place: verdict.samples
            for verdict in decision.verdicts
            if (place := (verdict.node, verdict.device.uuid)) not in served
        }
        self.memory = replace(self.memory, pressed={**self.memory.pressed, **kept})


@dataclass(frozen=True)
class _Wanted:
    """A target, the device for which it goes, and its entry in the journal."""

    verdict: DeviceVerdict
    target: Target
    entry: Recycled


def _entry(verdict: DeviceVerdict, target: Target, now: datetime) -> Recycled:
    uids = tuple(pod.uid for pod in target.pods)
    return Recycled(at=now, workload=target.workload, pods=uids, node=verdict.node)


def _pressed(reading: NodeTelemetry) -> bool:
    """Whether a device of the node is under its floor: of no other node it matters whose the pods are."""
    return any(device.free_bytes // MIB < reading.pool.floor_mib for device in reading.devices)


def _waited_for(reading: NodeTelemetry, seats: Sequence[WaitingSeat]) -> bool:
    return bool(reading.devices) and any(reading.pool.name in seat.pools for seat in seats)
