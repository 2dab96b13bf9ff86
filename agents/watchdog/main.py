"""watchdog: recycles the smallest set of pods over their budgets on a device below its floor.

The watchdog recycles only while a device is below its floor or a seat waits, and never a pod within its budget. If
telemetry is doubtful, the watchdog writes an Event on the node and recycles no pod of this node. A completed run means
only that the watchdog works.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime

from agents.kube.client import Api, in_cluster
from agents.kube.events import Recorder
from agents.kube.journal import Journal
from agents.kube.nodes import Node, read_nodes
from agents.kube.pods import waiting_seats
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.settings import read
from agents.telemetry import sampling
from agents.telemetry.client import NodeTelemetry, Scraper
from agents.telemetry.sampling import IncompletePassError
from agents.watchdog import evict
from agents.watchdog.decide import decide
from agents.watchdog.evict import EvictionOutcome, EvictionResult
from agents.watchdog.history import RecycleJournal
from agents.watchdog.pods import read_pods
from agents.watchdog.report import Reporter
from agents.watchdog.seats import waiting_long_enough
from agents.watchdog.types import HOUR, Decision, Limits, PassInput, PassState, Recycled, RecycleTarget, RefusedRecycle
from tenancy import names
from tenancy.devices.waiting import WaitingSeat
from tenancy.ledger import Ledger
from tenancy.seconds import FRESH_SECONDS
from tenancy.units import MIB


@dataclass(frozen=True, kw_only=True)
class Settings(sampling.Settings, Limits):
    """The settings of a run. With DRY_RUN, the watchdog only reports what it would do."""


def start(environ: Mapping[str, str], log: Log) -> int:
    """Starts a run with the settings in `environ`. Returns the exit status. Raises AgentError."""
    settings = read(Settings, environ)
    clock = Clock()
    with closing(Api(in_cluster(environ), clock=clock)) as api:
        return run(settings, api, clock, log)


def run(settings: Settings, api: Api, clock: Clock, log: Log) -> int:
    """Makes the passes of a run. Returns 1 if the last pass failed, else 0.

    An error of one pod or node is reported, and does not make the pass fail. Raises AgentError.
    """
    watchdog = WatchdogRun(settings=settings, api=api, clock=clock, log=log)
    return sampling.run(settings, clock, log, watchdog.take, lambda: watchdog.unsettled)


@dataclass(kw_only=True)
class WatchdogRun:
    """One run of the watchdog. `state` is the state that the last pass left for the next pass.

    `rehearsed` has the recycles that the run only reported, because the watchdog observes or the pool's numbers are
    assumed.
    """

    settings: Settings
    api: Api
    clock: Clock
    log: Log
    scraper: Scraper = field(default_factory=Scraper)
    state: PassState = field(default_factory=PassState)
    rehearsed: tuple[Recycled, ...] = ()
    unsettled: bool = False

    def __post_init__(self) -> None:
        self.recorder = Recorder(api=self.api, controller=names.WATCHDOG, instance=self.settings.pod_name)
        self.recycles = RecycleJournal(
            journal=Journal(api=self.api, namespace=self.settings.ledger_namespace, name=names.journal(names.WATCHDOG)),
            kept_seconds=max(int(HOUR.total_seconds()), self.settings.cool_down_seconds),
            log=self.log,
        )
        self.reported: set[tuple[str, str]] = set()

    def take(self) -> None:
        """Makes one pass: reads, decides, recycles and reports.

        Raises AgentError. Raises IncompletePassError if a part of the pass was not possible.
        """
        before, self.state, self.unsettled = self.state, PassState(), False  # a failed pass leaves no state
        ledger = sampling.read_ledger(self.settings, self.api, self.log)
        if ledger is None:
            return
        nodes = read_nodes(self.api)
        began = self.clock.monotonic()
        snapshot = self._read(ledger, nodes, before)
        now = self._now()
        decision = decide(snapshot, now)
        self.state, self.unsettled = decision.state, decision.unsettled
        reporter = Reporter(log=self.log, recorder=self.recorder, resource=ledger.names.gpumem, reported=self.reported)
        reporter.report(decision)
        self._recycle(reporter, decision, now, began)
        reporter.warn(decision, {node.name: node for node in nodes}, now)
        if decision.problem:
            raise IncompletePassError(decision.problem)

    def _now(self) -> datetime:
        return self.api.time or self.clock.now()

    def _read(self, ledger: Ledger, nodes: Sequence[Node], before: PassState) -> PassInput:
        """Reads the input of a pass. Reads only the pods of nodes where a device is below its floor or a seat may be
        placed.
        """
        readings = sampling.read_telemetry(
            self.settings, self.api, ledger, nodes, clock=self.clock, scraper=self.scraper
        )
        seats = waiting_long_enough(waiting_seats(self.api, ledger, self.log), self._now())
        wanted = dict.fromkeys(each.node for each in readings if _pressed(each) or _waited_for(each, seats))
        pods = [pod for node in wanted for pod in read_pods(self.api, node, ledger, self.log)]
        if not self.settings.dry_run:
            self.recycles.read()
        return PassInput(
            at=self.clock.monotonic(),
            local_now=self.clock.now(),
            readings=readings,
            pods=pods,
            recycled=(*self.recycles.recycled, *self.rehearsed),
            refused=self.recycles.refused,
            seats=seats,
            limits=self.settings,
            on_record=ledger.tenants_without_budget,
            state=before,
        )

    def _recycle(self, reporter: Reporter, decision: Decision, now: datetime, began: float) -> None:
        """Writes all recycles to the journal, and then evicts the pods. So only one of two runs evicts."""
        chosen = [(verdict, target) for verdict in decision.verdicts for target in verdict.recycle]
        wanted = [] if self.settings.dry_run else [each for each in chosen if each[0].assumed_pool is None]
        for verdict, target in chosen:
            if (verdict, target) not in wanted:
                self.rehearsed = (*self.rehearsed, target.recycled(now))
                reporter.rehearsed(verdict, target, now)
        if not wanted:
            return
        if self.recycles.reserve([target.recycled(now) for _, target in wanted], now):
            results = self._act([target for _, target in wanted], now, began)
            done = [(*each, result) for each, result in zip(wanted, results, strict=False)]
            for verdict, target, result in done:
                reporter.acted(verdict, target, result, now)
            self._keep_samples(decision, {found.place for found, _, result in done if result.outcome.may_be_done})
            if len(done) < len(wanted):
                raise IncompletePassError("some pods are not recycled: the API took so long that the sample is stale")
        else:
            self.log.warning("another watchdog run has recycled; the next pass decides again")

    def _act(self, targets: Sequence[RecycleTarget], now: datetime, began: float) -> Sequence[EvictionResult]:
        """Recycles the targets. Returns a result for each target, or fewer results if the sample became stale.

        Always removes from the journal the recycles that were not carried out, even after an error.
        """
        results: list[EvictionResult] = []
        try:
            for target in targets:
                if self.clock.monotonic() - began > FRESH_SECONDS:
                    break
                results.append(evict.recycle(self.api, target, self.settings.grace_seconds))
        finally:
            acted = list(zip(targets, results, strict=False))
            done = [target for target, result in acted if result.outcome.may_be_done]
            refused = [
                RefusedRecycle(at=now, workload=target.workload, why=result.detail)
                for target, result in acted
                if result.outcome in (EvictionOutcome.BLOCKED, EvictionOutcome.REFUSED)
            ]
            self.recycles.settle([each.recycled(now) for each in targets if each not in done], refused)
        return results

    def _keep_samples(self, decision: Decision, served: Collection[tuple[str, str]]) -> None:
        """Keeps the sample counts of the devices without a recycle. The next pass may recycle there at once."""
        kept = {found.place: found.samples for found in decision.verdicts if found.place not in served}
        self.state = replace(self.state, samples={**self.state.samples, **kept})


def _pressed(reading: NodeTelemetry) -> bool:
    """Returns True if a device of the node is below its floor."""
    return any(device.free_bytes // MIB < reading.pool.floor_mib for device in reading.devices)


def _waited_for(reading: NodeTelemetry, seats: Sequence[WaitingSeat]) -> bool:
    return bool(reading.devices) and any(reading.pool.name in seat.pools for seat in seats)
