"""reconcile: keeps gpumem advertised on the nodes of the ledger's pools, and takes it off again (record 0000).

A pass reads the ledger, the nodes and the bound pods, writes what differs and reads all of it again: what the nodes
then show is the proof, not the answer to the write. Between passes watches tell when the next one has something to do,
and it comes at once; where they fail, or a pass left something wrong, it comes after an interval.

What one node or one pod makes impossible is that one's: it is reported, and the others are as wanted.

Its metrics are others' series, since nobody scrapes a CronJob: the ledger's from the exporter next to the nodes' from
kube-state-metrics. Its own are Events on the node and log lines, both with the numbers.
"""

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field

from agents.kube import ledger
from agents.kube.client import Api, ApiError, in_cluster
from agents.kube.events import Event, Recorder
from agents.kube.journal import Journal, JournalError, Record
from agents.kube.ledger import StoredLedger
from agents.reconcile import cache as view
from agents.reconcile import decide, labels
from agents.reconcile.cache import NodeCache
from agents.reconcile.decide import Action, NodeFinding, NodePatch
from agents.reconcile.labels import Verified
from agents.reconcile.wait import EventWait, Settled
from agents.runtime.clock import Clock, seconds_left
from agents.runtime.log import Log
from agents.runtime.settings import RUN_SECONDS, SECONDS, flag, read, text, variable
from tenancy.ledger import Ledger
from tenancy.names import LEDGER, RECONCILE, Names, journal

# Of one pass, each followed by a new read, until the nodes show what is wanted.
WRITES = 4
# From one pass to the next, however much happens.
PAUSE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """RUN_SECONDS 0 is the Job of a rollout: it ends as soon as each pool has a node that is as wanted. Else the
    CronJob's run, for so long."""

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
        return Reconciler(settings=settings, api=api, clock=clock, log=log).run()


@dataclass(frozen=True, kw_only=True)
class PassReading:
    """What was read last, what is still to do or to say of it, and by node why a write was refused."""

    view: NodeCache
    actions: tuple[Action, ...]
    refused: Mapping[str, ApiError] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[NodeFinding, ...]:
        return tuple(action for action in self.actions if isinstance(action, NodeFinding))

    @property
    def changes(self) -> tuple[NodePatch, ...]:
        return tuple(action for action in self.actions if isinstance(action, NodePatch))

    @property
    def wanting(self) -> frozenset[str]:
        """The nodes that are not as wanted."""
        blocked = {finding.node.name for finding in self.findings if finding.blocking}
        return frozenset(blocked.union(change.node.name for change in self.changes))


@dataclass(frozen=True, kw_only=True)
class PassOutcome:
    """How a pass ended: what is not as wanted, the pools of which there is no node, and what to watch from here.

    `failed`: it was cut short. `served`: what a rollout waits for is there. `hopeless`: waiting would not help it.
    """

    wrong: tuple[str, ...] = ()
    without_nodes: tuple[str, ...] = ()
    settled: Settled | None = None
    failed: bool = False
    served: bool = True
    hopeless: bool = False

    @property
    def right(self) -> bool:
        return not self.wrong and not self.without_nodes


@dataclass(frozen=True, kw_only=True)
class Reconciler:
    """The shell: reads, lets `capacity.decide` decide, writes, reports."""

    settings: Settings
    api: Api
    clock: Clock
    log: Log

    def run(self) -> int:
        """0 if the last pass did what it could; of a rollout's Job, if each pool is served. Else 1.

        Raises AgentError.
        """
        self.log.info("starts", **asdict(self.settings))
        with closing(EventWait(self.api, self.clock, self.log)) as lookout:
            outcome = self._keep(lookout)
        if outcome.settled is not None and (unknown := outcome.settled.stored.unknown_keys()):
            self.log.warning(
                f"ConfigMap {LEDGER}: {', '.join(unknown)}: not known to this version of the agents and left out; if "
                "that stays, an up was interrupted: run pulumi up again"
            )
        if outcome.right:
            self.log.info("all nodes are up to date")
            return 0
        empty = (f"pool {name}: no node matches its node_selector" for name in outcome.without_nodes)
        self.log.error(f"not up to date: {'; '.join((*outcome.wrong, *empty))}")
        # That a node is not as wanted shows on the node, and has an alert; a run that failed is no heartbeat.
        once = self.settings.run_seconds == 0
        return int(outcome.failed or (once and not outcome.served))

    def _keep(self, lookout: EventWait) -> PassOutcome:
        """Passes until the run is over. Returns how the last one ended."""
        once = self.settings.run_seconds == 0
        endless = once and not self.settings.dry_run
        lasts = seconds_left(self.settings.run_seconds, self.settings.pod_name, self.clock.now())
        end = math.inf if endless else self.clock.monotonic() + lasts
        while True:
            began = self.clock.monotonic()
            outcome = self._attempt()
            # A missing node is not waited for: what the pool's tenants need is a node, not a later Job.
            if once and (outcome.served or outcome.hopeless):
                return outcome
            due = began + self.settings.interval_seconds
            if lookout.wait(outcome.settled, end if outcome.right else min(due, end)):
                due = began + PAUSE_SECONDS
            elif max(due, self.clock.monotonic()) >= end:
                return outcome
            self.clock.sleep(max(0.0, due - self.clock.monotonic()))

    def _attempt(self) -> PassOutcome:
        """A pass; an API that is slow or away fails this one only."""
        try:
            return self._pass()
        except ApiError as error:
            if not error.transient:
                raise
            self.log.warning(str(error))
            return PassOutcome(wrong=(str(error),), failed=True, served=False)

    def _pass(self) -> PassOutcome:
        stored = ledger.read(self.api, self.settings.ledger_namespace)
        if stored is None:
            self.log.info("nothing to do: there is no ledger")
            return PassOutcome()
        if stored.deleting:
            return self._retire(stored)
        promised = stored.ledger()
        if promised.names.capacity_finalizer not in stored.finalizers:
            # What nothing would take off again is not put on: this part is being left out of the stack.
            self.log.info("nothing to do: the ledger does not ask to be advertised")
            return PassOutcome()
        last = self._settle(promised, self._recall())
        return self._outcome(promised, stored, last)

    def _outcome(self, promised: Ledger, stored: StoredLedger, last: PassReading) -> PassOutcome:
        found = self._count_nodes(promised, last)
        unserved = [name for name, nodes in found.items() if not nodes - last.wanting]
        return PassOutcome(
            wrong=self._report(last),
            without_nodes=tuple(name for name, nodes in found.items() if not nodes),
            settled=Settled(stored=stored, ledger=promised, view=last.view, actions=last.actions),
            served=not unserved,
            hopeless=any(not found[name] or found[name] <= last.refused.keys() for name in unserved),
        )

    def _retire(self, stored: StoredLedger) -> PassOutcome:
        """The keys go from every node; then the finalizer, which names the domain even where the data is broken."""
        mine = {
            finalizer: names for finalizer in stored.finalizers if (names := Names.of_capacity_finalizer(finalizer))
        }
        if not mine:
            self.log.info("nothing to do: the ledger is being deleted and its capacity is removed from the nodes")
            return PassOutcome()
        wrong = tuple(
            problem
            for names in mine.values()
            for problem in self._report(self._settle(Ledger(domain=names.domain, pools=()), None))
        )
        if wrong or self.settings.dry_run:
            return PassOutcome(wrong=wrong, served=not wrong)
        rest = [finalizer for finalizer in stored.finalizers if finalizer not in mine]
        metadata = {"resourceVersion": stored.resource_version, "finalizers": rest}
        try:
            self.api.merge_patch(stored.path, {"metadata": metadata})
        except ApiError as error:
            if not error.outdated:
                raise
            return PassOutcome(wrong=(str(error),), served=False)
        self.log.info("capacity is removed from every node; the ledger's finalizer is removed")
        return PassOutcome()

    def _recall(self) -> Record | None:
        """What nodes showed before; None where that is not known: then a label that goes counts as gone at once."""
        try:
            record = self._journal.find()
            if record is not None:
                labels.from_journal(record.content)
            return record
        except JournalError as error:
            self.log.error(str(error))
            return None

    @property
    def _journal(self) -> Journal:
        return Journal(api=self.api, namespace=self.settings.ledger_namespace, name=journal(RECONCILE))

    def _settle(self, wanted: Ledger, record: Record | None) -> PassReading:
        """Writes until the nodes show what is wanted, but for those that refuse it."""
        known = {} if record is None else labels.from_journal(record.content)
        refused: dict[str, ApiError] = {}
        for writes_left in range(WRITES, -1, -1):
            seen = view.read(self.api, wanted)
            seen.now = int((self.api.time or self.clock.now()).timestamp())  # the server's: one clock for all runs
            if record is not None:
                seen.verified = known = labels.remember(
                    wanted, seen.nodes.values(), known, seen.now, seen.published(), claimed=seen.claimed()
                )
            reading = PassReading(view=seen, actions=decide.decide(wanted, seen.snapshot()), refused=refused)
            todo = [change for change in reading.changes if change.node.name not in refused]
            if not todo or not writes_left or self.settings.dry_run:
                break
            for change in todo:
                self._write(wanted.names, change, refused)
        if record is not None:
            self._keep_journal(record, known)
        return reading

    def _keep_journal(self, record: Record, known: Mapping[str, Verified]) -> None:
        """Where another run wrote meanwhile, the next pass goes on from what that one wrote."""
        content = labels.to_journal(known)
        if content == record.content or self.settings.dry_run:
            return
        try:
            self._journal.write(content, after=record)
        except ApiError as error:
            self.log.warning(f"what the nodes show was not kept: {error}")  # the capacity matters more

    def _report(self, reading: PassReading) -> tuple[str, ...]:
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
            f"{change.node.name}: {reading.refused[change.node.name]}"
            if change.node.name in reading.refused
            else f"{change.node.name}: still differs after {WRITES} writes, which should be: {change.note}"
            for change in reading.changes
        )
        return (*refused, *unsettled)

    def _write(self, names: Names, change: NodePatch, refused: dict[str, ApiError]) -> None:
        """What the server refuses is this node's; no answer at all is the pass's. Raises ApiError."""
        try:
            self.api.merge_patch(f"/api/v1/nodes/{change.node.name}/status", decide.status_patch(names, change))
        except ApiError as error:
            if error.status is None:
                raise
            if not error.outdated:
                refused[change.node.name] = error
                self.log.error(str(error), **_fields(change))
                return
            self.log.info("the node has changed; retrying", node=change.node.name)
            return
        self.log.info("wrote", **_written(change))
        self._record(change, change.warning, occasion=change.node.resource_version)

    def _record(self, action: NodePatch | NodeFinding, warning: bool, occasion: str = "") -> None:
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

    def _count_nodes(self, promised: Ledger, last: PassReading) -> dict[str, frozenset[str]]:
        """The nodes of each pool that shares memory; a pool with other than the declared number is only reported."""
        snapshot = last.view.snapshot()
        found = {
            pool.name: frozenset(node.name for node in decide.members(promised, pool, snapshot))
            for pool in promised.shared_pools
        }
        for pool in promised.shared_pools:
            nodes = len(found[pool.name])
            if nodes != pool.nodes:
                self.log.warning(f"pool {pool.name}: {nodes} nodes match, pools.{pool.name}.nodes is {pool.nodes}")
        return found


def _fields(action: NodePatch | NodeFinding) -> dict[str, object]:
    return {"node": action.node.name, "reason": action.reason, "bound_mib": action.bound_mib}


def _written(change: NodePatch) -> dict[str, object]:
    return {**_fields(change), "gpumem_mib": change.gpumem_mib, "gpu_count": change.gpu_count, "note": change.note}
