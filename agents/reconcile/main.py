"""reconcile: keeps gpumem advertised on the nodes of the ledger's pools, and takes it off again (seed 000).

A pass reads the ledger, the nodes and the bound pods, writes what differs and reads all of it again: what the nodes
then show is the proof, not the answer to the write. Between passes watches tell when the next one has something to do,
and it comes at once; where they fail, or a pass left something wrong, it comes after an interval.

Its metrics are others' series, since nobody scrapes a CronJob: the ledger's from the exporter beside the nodes' from
kube-state-metrics. Its own are Events on the node and log lines, both with the numbers.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass

from agents import capacity, ledger, schedule, view
from agents.api import Api, ApiError, in_cluster
from agents.capacity import Action, Change, Finding
from agents.clock import Clock
from agents.environment import RUN_SECONDS, SECONDS, flag, read, text, variable
from agents.events import Event, Recorder
from agents.ledger import StoredLedger
from agents.log import Log
from agents.lookout import Lookout, Settled
from agents.nodes import Node
from agents.view import View
from tenancy.ledger import Pool, Sharing
from tenancy.names import RECONCILE, Names

# Of one pass, each followed by a new read, until the nodes show what is wanted.
WRITES = 4
# From one pass to the next, however much happens.
PAUSE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """RUN_SECONDS 0 is the Job of a rollout: it ends as soon as all is right. Else the CronJob's run, for so long."""

    ledger_namespace: str = variable(text)
    pod_name: str = variable(text)
    dry_run: bool = variable(flag)
    interval_seconds: int = variable(SECONDS)
    run_seconds: int = variable(RUN_SECONDS)


def start(environ: Mapping[str, str], log: Log) -> int:
    """The exit status of a run under `environ`. Raises AgentError."""
    settings = read(Settings, environ)
    clock = Clock()
    with closing(Api(in_cluster(environ), clock=clock)) as api:
        return Reconcile(settings=settings, api=api, clock=clock, log=log).run()


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What was read last, and what is still to do or to say of it."""

    view: View
    actions: tuple[Action, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(action for action in self.actions if isinstance(action, Finding))

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(action for action in self.actions if isinstance(action, Change))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a pass ended: what is not as wanted, the pools of which there is no node, and what to watch from here."""

    wrong: tuple[str, ...] = ()
    without_nodes: tuple[str, ...] = ()
    settled: Settled | None = None

    @property
    def right(self) -> bool:
        return not self.wrong and not self.without_nodes


@dataclass(frozen=True, kw_only=True)
class Reconcile:
    """The shell: reads, lets `capacity.decide` decide, writes, reports."""

    settings: Settings
    api: Api
    clock: Clock
    log: Log

    def run(self) -> int:
        """0 if the last pass found every node as wanted, else 1. Raises AgentError."""
        self.log.info("starts", **asdict(self.settings))
        with closing(Lookout(self.api, self.clock, self.log)) as lookout:
            outcome = self._keep(lookout)
        if outcome.right:
            self.log.info("every node is as wanted")
            return 0
        empty = (f"pool {name}: no node matches its node_selector" for name in outcome.without_nodes)
        self.log.error(f"not as wanted: {'; '.join((*outcome.wrong, *empty))}")
        return 1

    def _keep(self, lookout: Lookout) -> Outcome:
        """Passes until the run is over. Returns how the last one ended."""
        once = self.settings.run_seconds == 0
        endless = once and not self.settings.dry_run
        lasts = schedule.seconds_left(self.settings.run_seconds, self.settings.pod_name, self.clock.now())
        end = math.inf if endless else self.clock.monotonic() + lasts
        while True:
            began = self.clock.monotonic()
            outcome = self._attempt()
            # A missing node is not waited for: what the pool's tenants need is a node, not a later Job.
            if once and (outcome.right or outcome.without_nodes):
                return outcome
            due = began + self.settings.interval_seconds
            if lookout.wait(outcome.settled, end if outcome.right else min(due, end)):
                due = began + PAUSE_SECONDS
            elif max(due, self.clock.monotonic()) >= end:
                return outcome
            self.clock.sleep(max(0.0, due - self.clock.monotonic()))

    def _attempt(self) -> Outcome:
        """A pass; an API that is slow or away fails this one only."""
        try:
            return self._pass()
        except ApiError as error:
            if not error.transient:
                raise
            self.log.warning(str(error))
            return Outcome(wrong=(str(error),))

    def _pass(self) -> Outcome:
        stored = ledger.read(self.api, self.settings.ledger_namespace)
        if stored is None:
            self.log.info("nothing to do: there is no ledger")
            return Outcome()
        if stored.deleting:
            return self._retire(stored)
        promised = stored.ledger()
        if promised.names.capacity_finalizer not in stored.finalizers:
            # What nothing would take off again is not put on: this part is being left out of the stack.
            self.log.info("nothing to do: the ledger does not ask to be advertised")
            return Outcome()
        last = self._settle(promised.names, promised.pools)
        return Outcome(
            wrong=self._report(last),
            without_nodes=self._count_nodes(promised.pools, last.view.snapshot().nodes),
            settled=Settled(stored=stored, ledger=promised, view=last.view, actions=last.actions),
        )

    def _retire(self, stored: StoredLedger) -> Outcome:
        """The keys go from every node; then the finalizer, which names the domain even where the data is broken."""
        mine = {
            finalizer: names for finalizer in stored.finalizers if (names := Names.of_capacity_finalizer(finalizer))
        }
        if not mine:
            self.log.info("nothing to do: the ledger is going and its capacity is off the nodes")
            return Outcome()
        wrong = tuple(problem for names in mine.values() for problem in self._report(self._settle(names, ())))
        if wrong or self.settings.dry_run:
            return Outcome(wrong=wrong)
        rest = [finalizer for finalizer in stored.finalizers if finalizer not in mine]
        metadata = {"resourceVersion": stored.resource_version, "finalizers": rest}
        try:
            self.api.merge_patch(stored.path, {"metadata": metadata})
        except ApiError as error:
            if not error.outdated:
                raise
            return Outcome(wrong=(str(error),))
        self.log.info("the capacity is off every node; the ledger may go")
        return Outcome()

    def _settle(self, names: Names, pools: tuple[Pool, ...]) -> Reading:
        """Writes until the nodes show what is wanted."""
        for writes_left in range(WRITES, -1, -1):
            seen = view.read(self.api, names.gpumem)
            reading = Reading(view=seen, actions=capacity.decide(names, pools, seen.snapshot()))
            if not reading.changes or not writes_left or self.settings.dry_run:
                break
            for change in reading.changes:
                self._write(names, change)
        return reading

    def _report(self, reading: Reading) -> tuple[str, ...]:
        """Tells of what was found. Returns what is wrong."""
        for finding in reading.findings:
            self.log.warning(finding.note, **_fields(finding))
            if not self.settings.dry_run:
                self._record(finding, warning=True)
        refused = (f"{finding.node.name}: {finding.note}" for finding in reading.findings if finding.blocking)
        if self.settings.dry_run:
            for change in reading.changes:
                self.log.info("would write", **_written(change))
            return tuple(refused)
        unsettled = (
            f"{change.node.name}: still differs after {WRITES} writes, which should be: {change.note}"
            for change in reading.changes
        )
        return (*refused, *unsettled)

    def _write(self, names: Names, change: Change) -> None:
        try:
            self.api.merge_patch(f"/api/v1/nodes/{change.node.name}/status", capacity.status_patch(names, change))
        except ApiError as error:
            if not error.outdated:
                raise
            self.log.info("the node changed meanwhile; it is read again", node=change.node.name)
            return
        self.log.info("wrote", **_written(change))
        self._record(change, change.warning, occasion=change.node.resource_version)

    def _record(self, action: Change | Finding, warning: bool, occasion: str = "") -> None:
        event = Event(
            regarding=action.node.reference,
            reason=action.reason,
            note=action.note,
            action="Reconcile",
            warning=warning,
            occasion=occasion,
        )
        try:
            Recorder(api=self.api, controller=RECONCILE, instance=self.settings.pod_name).record(
                event, self.clock.now()
            )
        except ApiError as error:
            self.log.warning(f"the event was not written: {error}")  # the capacity matters more than its record

    def _count_nodes(self, pools: tuple[Pool, ...], nodes: Sequence[Node]) -> tuple[str, ...]:
        """The memory pools without any node; a pool with other than the declared number is only told of."""
        shared = [pool for pool in pools if pool.sharing is Sharing.MEMORY]
        found = {pool.name: len(capacity.members(pool, nodes)) for pool in shared}
        for pool in shared:
            if found[pool.name] != pool.nodes:
                self.log.warning(
                    f"pool {pool.name}: {found[pool.name]} nodes match, pools.{pool.name}.nodes is {pool.nodes}"
                )
        return tuple(name for name, nodes in found.items() if nodes == 0)


def _fields(action: Change | Finding) -> dict[str, object]:
    return {"node": action.node.name, "reason": action.reason, "bound_mib": action.bound_mib}


def _written(change: Change) -> dict[str, object]:
    return {**_fields(change), "gpumem_mib": change.gpumem_mib, "gpu_count": change.gpu_count, "note": change.note}
