"""watchdog: recycles as few pods over their budgets as possible on a device below its floor.

The watchdog recycles only while a device is below its floor or a seat waits. The watchdog never recycles a pod within
its budget. If the telemetry of a node is doubtful, the watchdog writes an Event on the node and recycles none of its
pods. A completed run shows that the watchdog works, but not that the devices are above their floors.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from agents.kube.client import Api, in_cluster
from agents.kube.events import Recorder
from agents.kube.journal import Journal
from agents.kube.nodes import Node, read_nodes
from agents.kube.pods import waiting_seats
from agents.runtime.clock import Clock
from agents.runtime.items import ItemProblems, Unjudged, judged
from agents.runtime.log import Log
from agents.runtime.settings import read
from agents.telemetry import client, sampling
from agents.telemetry.client import NodeTelemetry, Scraper
from agents.telemetry.sampling import IncompletePassError
from agents.watchdog import evict
from agents.watchdog.decide import decide
from agents.watchdog.evict import EvictionOutcome, EvictionResult, may_be_done
from agents.watchdog.history import RecycleJournal
from agents.watchdog.pods import read_pods
from agents.watchdog.report import Reporter
from agents.watchdog.seats import waiting_long_enough
from agents.watchdog.snapshot import Snapshot
from agents.watchdog.types import HOUR, Decision, Limits, PassState, Recycled, RecycleTarget
from tenancy import names
from tenancy.devices.waiting import WaitingSeat
from tenancy.ledger import Ledger
from tenancy.seconds import FRESH_SECONDS
from tenancy.units import MIB

Results = Sequence[EvictionResult]


@dataclass(frozen=True, kw_only=True)
class Settings(sampling.Settings, Limits):
    """The settings of a run of the watchdog. With DRY_RUN, the watchdog only reports how it would act."""


def start(environ: Mapping[str, str], log: Log) -> int:
    """Starts a run with the settings in `environ`, and returns the exit status. Raises AgentError."""
    settings = read(Settings, environ)
    clock = Clock()
    with closing(Api(in_cluster(environ), clock=clock)) as api:
        return run(settings, api, clock, log)


def run(settings: Settings, api: Api, clock: Clock, log: Log) -> int:
    """Makes the passes of a run. Returns 1 if the last pass failed, and else 0.

    An error of one pod or node is reported, but does not make the pass fail. Raises AgentError.
    """
    watchdog = WatchdogRun(settings=settings, api=api, clock=clock, log=log)
    return sampling.run(settings, clock, log, watchdog.take, lambda: watchdog.unsettled)


@dataclass(kw_only=True)
class WatchdogRun:
    """One run of the watchdog. `state` is the state that the last pass has left for the next pass.

    `rehearsed` has the recycles that the run has only reported. The watchdog only reports a recycle if it observes, or
    if the memory figures of the pool are assumed.
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
        self.refused: dict[str, str] = {}
        self.problems = ItemProblems(log=self.log)

    def take(self) -> None:
        """Makes one pass: reads, decides, recycles and reports.

        Raises AgentError. Raises IncompletePassError if the pass could not do a part of its work.
        """
        # a failed pass leaves no state for the next pass
        before, self.state, self.unsettled = self.state, PassState(), False
        ledger = sampling.read_ledger(self.settings, self.api, self.log)
        if ledger is None:
            return
        nodes = read_nodes(self.api)
        began = self.clock.monotonic()
        snapshot = self._read(ledger, nodes, before)
        if self._is_late(began):
            raise IncompletePassError("no action: the API took so long to answer that the sample is stale")
        decision = decide(snapshot)
        self.unsettled = decision.unsettled
        reporter = Reporter(
            log=self.log,
            recorder=self.recorder,
            resource=ledger.names.gpumem,
            now=snapshot.now,
            reported=self.reported,
        )
        reporter.report(decision)
        served = self._recycle(reporter, decision, snapshot.now, began)
        # After a recycle, the next one on the device needs new samples.
        samples = {place: 0 if place in served else count for place, count in decision.state.samples.items()}
        self.state = replace(decision.state, samples=samples)
        reporter.warn(decision, {node.name: node for node in nodes})
        reporter.warn_of_caps(snapshot.readings)
        if decision.problem:
            raise IncompletePassError(decision.problem)

    def _is_late(self, began: float) -> bool:
        return self.clock.monotonic() - began > FRESH_SECONDS

    def _read(self, ledger: Ledger, nodes: Sequence[Node], before: PassState) -> Snapshot:
        """Reads the input of a pass. Reads only the pods of nodes with a device below its floor, and of nodes on which
        a waiting seat could be placed.
        """
        readings = client.read(
            client.list_exporters(self.api, self.settings.exporter_namespace),
            ledger,
            nodes,
            port=self.settings.exporter_port,
            scraper=self.scraper,
            monotonic=self.clock.monotonic,
        )
        seats = waiting_long_enough(waiting_seats(self.api, ledger, self.problems), self._now())
        wanted = dict.fromkeys(each.node for each in readings if _pressed(each) or _waited_for(each, seats))
        pods = [pod for node in wanted for pod in read_pods(self.api, node, ledger, self.problems)]
        if not self.settings.dry_run:
            self.recycles.read()
        return Snapshot(
            at=self.clock.monotonic(),
            now=self._now(),
            local_now=self.clock.now(),
            readings=readings,
            pods=pods,
            recycled=(*self.recycles.recycled, *self.rehearsed),
            refused=self.refused,
            seats=seats,
            limits=self.settings,
            on_record=ledger.tenants_without_budget,
            state=before,
        )

    def _now(self) -> datetime:
        return self.api.time or self.clock.now()

    def _recycle(
        self, reporter: Reporter, decision: Decision, now: datetime, began: float
    ) -> Collection[tuple[str, str]]:
        """Writes all recycles to the journal, and then evicts the pods. If two runs overlap, the run that fails to
        write the journal does not evict.

        Returns the devices on which the recycles may be done.
        """
        chosen = [(verdict, target) for verdict in decision.verdicts for target in verdict.recycle]
        wanted = [] if self.settings.dry_run else [each for each in chosen if each[0].assumed_pool is None]
        served = set()
        for verdict, target in chosen:
            if (verdict, target) not in wanted:
                self.rehearsed = (*self.rehearsed, target.recycled(now))
                served.add(verdict.place)
                reporter.rehearsed(verdict, target)
        if not wanted:
            return served
        if not self.recycles.reserve([target.recycled(now) for _, target in wanted], now):
            self.log.warning("another watchdog run has recycled; the next pass decides again")
            return served
        results = self._act([target for _, target in wanted], now, began)
        for (verdict, target), found in zip(wanted, results, strict=False):
            reporter.acted(verdict, target, found)
            if may_be_done(found):
                served.add(verdict.place)
        if len(results) < len(wanted):
            raise IncompletePassError("some pods are not recycled: the API took so long that the sample is stale")
        return served

    def _act(self, targets: Sequence[RecycleTarget], now: datetime, began: float) -> Sequence[Results]:
        """Recycles the targets. Returns the results of all targets, or of fewer targets if the sample has become stale.

        Always removes recycles that were not carried out from the journal, even after an error.
        """
        results: list[Results] = []
        try:
            for target in targets:
                if self._is_late(began):
                    break
                results.append(self._recycled(target))
        finally:
            acted = list(zip(targets, results, strict=False))
            done = [target for target, found in acted if may_be_done(found)]
            self.refused |= {
                target.workload: result.detail
                for target, found in acted
                for result in found
                if target not in done and result.outcome is EvictionOutcome.REFUSED
            }
            self.recycles.settle(
                undone=[each.recycled(now) for each in targets if each not in done],
                overruled=[
                    target.recycled(now)
                    for target, found in acted
                    if any(result.outcome is EvictionOutcome.DELETED for result in found)
                ],
            )
        return results

    def _recycled(self, target: RecycleTarget) -> Results:
        found = judged(partial(evict.recycle, self.api, target, self.settings.grace_seconds))
        if not isinstance(found, Unjudged):
            return found
        about = tuple(pod.reference for pod in target.pods)
        return [EvictionResult(EvictionOutcome.REFUSED, found.why, about)]


def _pressed(reading: NodeTelemetry) -> bool:
    return any(device.free_bytes // MIB < reading.pool.floor_mib for device in reading.devices)


def _waited_for(reading: NodeTelemetry, seats: Sequence[WaitingSeat]) -> bool:
    return bool(reading.devices) and any(reading.pool.name in seat.pools for seat in seats)
