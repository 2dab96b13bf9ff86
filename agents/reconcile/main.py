"""reconcile: advertises gpumem on the nodes of the ledger's pools, and removes gpumem from other nodes.

A pass reads the ledger, the nodes and the bound pods. The pass then corrects each node that advertises a wrong amount,
and reads the nodes again to check the result. The next pass starts when an event of a watch makes it necessary. If a
watch fails or the last pass left an error, the next pass starts after the interval. If one node or pod has a problem,
reconcile reports the problem and continues with the next node.

reconcile has no metrics, because Prometheus cannot reliably scrape the short runs of a CronJob. In place of metrics,
reconcile writes Events on the nodes and log lines.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass

from agents.kube import ledger
from agents.kube.client import Api, ApiError, in_cluster
from agents.kube.events import Event, Recorder
from agents.kube.journal import Journal, JournalError
from agents.kube.ledger import StoredLedger
from agents.kube.nodes import NODES
from agents.kube.paths import below
from agents.reconcile import cache, decide, labels
from agents.reconcile.decide import NodeFinding, NodePatch
from agents.reconcile.labels import VerifiedEvidence
from agents.reconcile.wait import EventWait, PassEnd
from agents.runtime.clock import Clock, seconds_left
from agents.runtime.log import Log
from agents.runtime.settings import RUN_SECONDS, SECONDS, read, text, variable
from tenancy.ledger import Ledger
from tenancy.names import EVENT_ADVERTISED, LEDGER, RECONCILE, Names, journal

# The maximum number of rounds in one pass of reconcile. A round reads the nodes and writes the differences.
WRITES = 4
# The shortest time from the start of one pass to the start of the next.
PAUSE_SECONDS = 1.0
# The longest run of a rollout's Job, in seconds. The run ends before the Job's deadline of 120 s, so that its log has
# the errors.
ROLLOUT_SECONDS = 90


@dataclass(frozen=True, kw_only=True)
class Settings:
    """RUN_SECONDS is the length of a CronJob's run.

    For the Job of a rollout, RUN_SECONDS is 0. The Job of a rollout ends as soon as each pool has a node with the right
    capacity, or after ROLLOUT_SECONDS.
    """

    ledger_namespace: str = variable(text)
    pod_name: str = variable(text)
    interval_seconds: int = variable(SECONDS)
    run_seconds: int = variable(RUN_SECONDS)


def start(environ: Mapping[str, str], log: Log) -> int:
    """Runs the agent. Returns the agent's exit status. Raises AgentError."""
    settings = read(Settings, environ)
    clock = Clock()
    with closing(Api(in_cluster(environ), clock=clock)) as api:
        return Reconciler(settings=settings, api=api, clock=clock, log=log).run()


@dataclass(frozen=True, kw_only=True)
class PassOutcome:
    """The result of a pass: the errors, the pools without a node, and the last state.

    `failed` is True if an error ended the pass. `served` is True if each pool has a node with the right capacity.
    `hopeless` is True if a longer wait of the rollout would not help.
    """

    wrong: tuple[str, ...] = ()
    without_nodes: tuple[str, ...] = ()
    pass_end: PassEnd | None = None
    failed: bool = False
    served: bool = True
    hopeless: bool = False

    @property
    def right(self) -> bool:
        return not self.wrong and not self.without_nodes


@dataclass(kw_only=True)
class Reconciler:
    settings: Settings
    api: Api
    clock: Clock
    log: Log

    def run(self) -> int:
        """Makes passes until the end of the run. Returns 1 if an error ended the last pass, and else 0.

        The Job of a rollout also returns 1 if a pool has no node with the right capacity. Raises AgentError.
        """
        self.log.info("starts", **asdict(self.settings))
        with closing(EventWait(self.api, self.clock, self.log)) as events:
            outcome = self._keep(events)
        if outcome.pass_end is not None and (unknown := outcome.pass_end.stored.unknown_keys()):
            self.log.warning(
                f"ConfigMap {LEDGER}: {', '.join(unknown)}: not known to this version of the agents and left out; if "
                "that stays, an up was interrupted: run pulumi up again"
            )
        if outcome.right:
            self.log.info("all nodes are up to date")
            return 0
        empty = (f"pool {name}: no node matches its node_selector" for name in outcome.without_nodes)
        self.log.error(f"not up to date: {'; '.join((*outcome.wrong, *empty))}")
        # A node with a wrong capacity does not make the run fail, because an alert reports the node.
        return int(outcome.failed or (self._is_rollout and not outcome.served))

    @property
    def _is_rollout(self) -> bool:
        return self.settings.run_seconds == 0

    def _keep(self, events: EventWait) -> PassOutcome:
        lasts = seconds_left(self.settings.run_seconds, self.settings.pod_name, self.clock.now())
        end = self.clock.monotonic() + (ROLLOUT_SECONDS if self._is_rollout else lasts)
        while True:
            began = self.clock.monotonic()
            outcome = self.attempt()
            # A rollout must not wait for missing nodes.
            if self._is_rollout and (outcome.served or outcome.hopeless):
                return outcome
            due = began + self.settings.interval_seconds
            if events.wait(outcome.pass_end, end if outcome.right else min(due, end)):
                due = began + PAUSE_SECONDS
            elif max(due, self.clock.monotonic()) >= end:
                return outcome
            self.clock.sleep(max(0.0, due - self.clock.monotonic()))

    def attempt(self) -> PassOutcome:
        """Makes a pass. If the API server is slow or does not answer, the pass fails and the run continues."""
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
            # If the ledger has no finalizer for the capacity, the stack is removing reconcile. No later pass would
            # remove the capacity that this pass advertised.
            self.log.info("nothing to do: the ledger advertises nothing")
            return PassOutcome()
        last = self._settle(stored, promised)
        found = self._count_nodes(last)
        unserved = [name for name, nodes in found.items() if not nodes - last.wanting]
        return PassOutcome(
            wrong=self._report(last),
            without_nodes=tuple(name for name, nodes in found.items() if not nodes),
            pass_end=last,
            served=not unserved,
            hopeless=any(not found[name] or found[name] <= last.refused.keys() for name in unserved),
        )

    def _retire(self, stored: StoredLedger) -> PassOutcome:
        """Removes the keys of gpumem and gpu-count from every node, and then the finalizer of the ledger.

        The finalizer's name contains the domain of the keys, so that this function works even if the ledger is invalid.
        """
        mine = next(filter(None, map(Names.of_capacity_finalizer, stored.finalizers)), None)
        if mine is None:
            self.log.info("nothing to do: the ledger is being deleted and its capacity is removed from the nodes")
            return PassOutcome()
        wrong = self._report(self._write_all(stored, Ledger(domain=mine.domain, pools=()), None))
        if wrong:
            return PassOutcome(wrong=wrong, served=False)
        rest = [finalizer for finalizer in stored.finalizers if finalizer != mine.capacity_finalizer]
        metadata = {"resourceVersion": stored.resource_version, "finalizers": rest}
        try:
            self.api.merge_patch(stored.path, {"metadata": metadata})
        except ApiError as error:
            if not error.outdated:
                raise
            return PassOutcome(wrong=(str(error),), served=False)
        self.log.info("capacity is removed from every node; the ledger's finalizer is removed")
        return PassOutcome()

    def _settle(self, stored: StoredLedger, promised: Ledger) -> PassEnd:
        """Writes until the nodes have the right capacity, and keeps what was verified in the journal.

        Without a readable journal, reconcile cannot replace a missing label by the last one.
        """
        kept = Journal(api=self.api, namespace=self.settings.ledger_namespace, name=journal(RECONCILE))
        try:
            record = kept.find()
            before = labels.from_journal(record.content) if record else None
        except JournalError as error:
            self.log.error(str(error))
            record, before = None, None
        last = self._write_all(stored, promised, before)
        if record is not None and last.cache.verified != before:
            try:
                kept.write(labels.to_journal(last.cache.verified), after=record)
            except ApiError as error:
                self.log.warning(f"the nodes' labels were not recorded: {error}")  # capacity matters more
        return last

    def _write_all(
        self, stored: StoredLedger, wanted: Ledger, verified: Mapping[str, VerifiedEvidence] | None
    ) -> PassEnd:
        """Writes until the nodes have the right capacity. Skips each node for which the API server has
        refused a write.

        `verified` is what was last verified of each node. If it is None, a node that loses its labels leaves its pool
        at once, because nobody would remember for how long they are missing.
        """
        refused: dict[str, ApiError] = {}
        for writes_left in range(WRITES, -1, -1):
            seen = cache.read(self.api, wanted)
            now = self.api.time or self.clock.now()  # all runs read the same clock, that of the API server
            seen.now = int(now.timestamp())
            if verified is not None:
                seen.verified = verified = labels.remember_verified(
                    wanted, seen.nodes.kept.values(), verified, seen.now, seen.published()
                )
            actions = decide.decide(wanted, seen.snapshot())
            last = PassEnd(stored=stored, ledger=wanted, cache=seen, actions=actions, refused=refused)
            todo = [change for change in last.changes if change.node.name not in refused]
            if not todo or not writes_left:
                break
            for change in todo:
                self._write(wanted.names, change, refused)
        return last

    def _report(self, last: PassEnd) -> tuple[str, ...]:
        """Writes the problems to the log and to Events. Returns the errors."""
        for finding in last.findings:
            self.log.warning(finding.note, **_fields(finding))
            self._record(finding)
        refused = (f"{finding.node.name}: {finding.note}" for finding in last.findings if finding.blocking)
        unsettled = (
            f"{change.node.name}: {last.refused[change.node.name]}"
            if change.node.name in last.refused
            else f"{change.node.name}: still differs after {WRITES} writes, which should be: {change.note}"
            for change in last.changes
        )
        return (*refused, *unsettled)

    def _write(self, names: Names, change: NodePatch, refused: dict[str, ApiError]) -> None:
        """Writes to one node, and adds a refusal to `refused`. Raises ApiError if the API server does not answer."""
        try:
            self.api.merge_patch(below(NODES, change.node.name, "status"), decide.status_patch(names, change))
        except ApiError as error:
            if error.status is None:
                raise
            if not error.outdated:
                refused[change.node.name] = error
                self.log.error(str(error), **_fields(change))
                return
            self.log.info("the node has changed; retrying", node=change.node.name)
            return
        self.log.info("wrote", **_fields(change), gpumem_mib=change.gpumem_mib, note=change.note)
        self._record(change, occasion=change.node.resource_version)

    def _record(self, action: NodePatch | NodeFinding, occasion: str = "") -> None:
        event = Event(
            regarding=action.node.reference,
            reason=action.reason,
            note=action.note,
            action="Reconcile",
            warning=action.reason != EVENT_ADVERTISED,
            occasion=occasion,
        )
        recorder = Recorder(api=self.api, controller=RECONCILE, instance=self.settings.pod_name)
        recorder.try_record(event, self.clock.now(), self.log)

    def _count_nodes(self, last: PassEnd) -> dict[str, frozenset[str]]:
        snapshot, found = last.cache.snapshot(), {}
        for pool in last.ledger.shared_pools:
            nodes = frozenset(node.name for node in decide.pool_nodes(last.ledger, pool, snapshot))
            found[pool.name] = nodes
            if len(nodes) != pool.nodes:
                self.log.warning(f"pool {pool.name}: {len(nodes)} nodes match, pools.{pool.name}.nodes is {pool.nodes}")
        return found


def _fields(action: NodePatch | NodeFinding) -> dict[str, object]:
    return {"node": action.node.name, "reason": action.reason, "bound_mib": action.bound_mib}
