"""gate: scales on-demand workloads from 0 to 1 replica while there is headroom, and back to 0.

A pass of the gate reads the journal, the devices, the pods, the Deployments and their demand. After reading, the pass
decides, writes the journal, and scales Deployments. Watches keep the nodes and GPU pods in the cache up to date. Before
a pass scales a Deployment, it lists the nodes and the pods of the pools again. If two runs overlap, the run that fails
to write the journal scales no Deployment. If a workload's namespace or probe causes an error, the gate writes an Event
on its Deployment and continues.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cache, partial

from agents.gate import deployments, report
from agents.gate.cache import ClusterCache
from agents.gate.config import GateConfig, declared
from agents.gate.decide import decide, entry_after
from agents.gate.deployments import Deployment
from agents.gate.headroom import used_mib
from agents.gate.ownership import JournalEntry, Ownership, follow, ownership_of
from agents.gate.pods import Seating, ended_pods
from agents.gate.probes import fetch_answer
from agents.gate.types import Action, GateState, Intent, Signal
from agents.kube.client import Api, ApiError, in_cluster
from agents.kube.events import Event, Recorder
from agents.kube.journal import Journal, JournalError, Record
from agents.kube.nodes import Node, read_nodes
from agents.kube.pods import waiting_seats
from agents.runtime.clock import Clock, Moment
from agents.runtime.items import ItemProblems, Unjudged, judged
from agents.runtime.log import Log
from agents.runtime.settings import SECONDS, read, variable
from agents.telemetry import client, sampling
from agents.telemetry.client import NodeTelemetry, Scraper
from agents.telemetry.sampling import IncompletePassError
from tenancy import names
from tenancy.decode import DecodeError, decode
from tenancy.ledger import Ledger
from tenancy.seconds import FRESH_SECONDS

# The maximum number of probes at the same time. Probes run in parallel, so that a slow probe does not delay all other
# probes.
PROBES = 32


@dataclass(frozen=True, kw_only=True)
class Settings(sampling.Settings):
    """The settings of a run of the gate.

    The workload that comes first in GATES gets headroom first. A pod may still allocate memory for STARTING_SECONDS
    after its start.
    """

    gates: tuple[GateConfig, ...] = variable(declared)
    starting_seconds: int = variable(SECONDS)


def start(environ: Mapping[str, str], log: Log) -> int:
    """Starts a run with the settings in `environ`, and returns the exit status. Raises AgentError."""
    settings = read(Settings, environ)
    clock = Clock()
    with closing(Api(in_cluster(environ), clock=clock)) as api:
        return run(settings, api, clock, log)


def run(settings: Settings, api: Api, clock: Clock, log: Log) -> int:
    """Makes the passes. Returns 0 if the API server answered in the last pass, and else 1. Raises AgentError."""
    with closing(GateRun(settings=settings, api=api, clock=clock, log=log)) as gate_run:
        return sampling.run(settings, clock, log, gate_run.take)


@dataclass(kw_only=True)
class _Sample:
    """The readings of a sample, and the nodes that the watch showed before the readings. `before` has the pods of the
    last sample. `listed` is True after the sample has listed the pods of the pools' nodes.
    """

    ledger: Ledger
    nodes: Sequence[Node]
    readings: tuple[NodeTelemetry, ...]
    before: Seating
    now: int
    listed: bool = False


@dataclass(kw_only=True)
class GateRun:
    """One run of the gate. `agreed` has, for each workload, the last samples in a row with the same result.

    The last sample has set `readings`, `seating` and `moment`. `reported` has the Events that this run has written.
    """

    settings: Settings
    api: Api
    clock: Clock
    log: Log
    scraper: Scraper = field(default_factory=Scraper)
    ask: Callable[[str], bytes] = fetch_answer
    threads: Callable[[int], Executor] = ThreadPoolExecutor
    agreed: Mapping[str, Signal] = field(default_factory=dict)
    readings: Mapping[str, NodeTelemetry] = field(default_factory=dict)
    moment: Moment | None = None
    seating: Seating = field(default_factory=Seating)
    reported: set[Event] = field(default_factory=set)
    problems: ItemProblems = field(init=False)
    cache: ClusterCache = field(init=False)

    def __post_init__(self) -> None:
        self.problems = ItemProblems(log=self.log)
        self.cache = ClusterCache(
            api=self.api,
            clock=self.clock,
            log=self.log,
            problems=self.problems,
            exporter_namespace=self.settings.exporter_namespace,
        )

    def close(self) -> None:
        """Closes the watches."""
        self.cache.close()

    def take(self) -> None:
        """Makes one pass. First stops the workloads on devices where a seat or the floor needs memory. A slow probe
        must not delay these stops. Afterwards, decides on all workloads by their demand.

        Raises AgentError.
        """
        before, self.agreed = self.agreed, {}  # a failed sample ends the series of samples with the same result
        record = self._journal.read()
        began, now = self.clock.monotonic(), int(self._now().timestamp())
        ledger = sampling.read_ledger(self.settings, self.api, self.log)
        if ledger is None:
            return
        sample = self._sample(ledger, now)
        states = self._states(_entries(record), sample.readings, before, now)
        urgent = [each for each in self._decide(states, sample) if each.act is Action.CLOSE]
        done = {intent.gate.name for intent in urgent}
        written = self._carry_out(record, urgent, now, began)
        if written is None:
            return
        intents = self._decide(self._answered(states, done), sample)
        rest = [intent for intent in intents if intent.gate.name not in done]
        if self._carry_out(written, rest, now, began) is None:
            return
        self.agreed = {intent.gate.name: intent.signal for intent in intents}

    def _sample(self, ledger: Ledger, now: int) -> _Sample:
        """Reads the exporters first, and then the pods. Raises AgentError."""
        before, self.readings = self.readings, {}
        self.cache.update(ledger)
        nodes = [node for _, node in sorted(self.cache.nodes.kept.items())]
        readings = client.read(
            self.cache.exporters.kept.values(),
            ledger,
            nodes,
            port=self.settings.exporter_port,
            scraper=self.scraper,
            monotonic=self.clock.monotonic,
        )
        self.readings = {reading.node: reading for reading in readings}
        marked = tuple(replace(each, repeated=not each.is_new(before.get(each.node))) for each in readings)
        sample = _Sample(ledger=ledger, nodes=nodes, readings=marked, before=self.seating, now=now)
        self.cache.update(ledger)
        self._read_pods(sample)
        return sample

    def _read_pods(self, sample: _Sample) -> None:
        pools = {gate.pool for gate in self.settings.gates}
        gated = [reading for reading in sample.readings if reading.pool.name in pools]
        pods = [pod for reading in gated for pod in self.cache.pods_on(reading, sample.ledger, listed=sample.listed)]
        self.seating = Seating(
            seats=sample.ledger.seats,
            pods=(*pods, *ended_pods(pods, gated, sample.before.pods, sample.now)),
            waiting=tuple(waiting_seats(self.api, sample.ledger, self.problems)),
            starting_seconds=self.settings.starting_seconds,
        )

    def _decide(self, states: Sequence[GateState], sample: _Sample) -> tuple[Intent, ...]:
        """Returns the intents. A watch may deliver its events late, and not every pod has the label, so a sample that
        counts for an act lists the nodes and pods. Raises AgentError.
        """
        intents = decide(states, sample.readings, self.seating, sample.now)
        counts = not self.settings.dry_run and any(intent.signal.act is not Action.KEEP for intent in intents)
        if not counts or sample.listed:
            return intents
        sample.listed = True
        if _shown(read_nodes(self.api), sample.ledger) != _shown(sample.nodes, sample.ledger):
            self.cache.close()
            raise IncompletePassError("no gate is opened or closed: a node has changed since the readings")
        self._read_pods(sample)
        return decide(states, sample.readings, self.seating, sample.now)

    def _now(self) -> datetime:
        """Returns the time of day of this pass. Raises IncompletePassError if the local clock and the API server's
        clock differ.
        """
        before, now = self.moment, self.clock.now()
        self.moment = Moment(at=self.clock.monotonic(), server=self.api.time or now, local=now)
        problem = self.moment.problem(before)
        if problem is not None:
            raise IncompletePassError(f"no gate is opened or closed: {problem}")
        return now

    def _states(
        self,
        entries: Mapping[str, JournalEntry],
        readings: Sequence[NodeTelemetry],
        agreed: Mapping[str, Signal],
        now: int,
    ) -> list[GateState]:
        """Returns the state of each workload without the result of its probe. Raises ApiError if the API server does
        not answer.
        """
        scalers = cache(partial(deployments.read_scalers, self.api))
        states = []
        for gate in self.settings.gates:
            entry = entries.get(gate.name)
            found = judged(partial(self._state, gate, entry, scalers, readings, now))
            if isinstance(found, Unjudged):
                self.log.error(f"it cannot be read: {found.why}", gate=gate.name)
                found = _unreadable(gate, entry, found.why)
            if found is not None:
                states.append(replace(found, agreed=agreed.get(gate.name)))
        return states

    def _state(
        self,
        gate: GateConfig,
        entry: JournalEntry | None,
        scalers: Callable[[str], Mapping[str, str]],
        readings: Sequence[NodeTelemetry],
        now: int,
    ) -> GateState | None:
        """Returns the state of one workload, or None if its Deployment does not exist. Raises ApiError."""
        found = deployments.read(self.api, gate.namespace, gate.deployment)
        if found is None:
            self.log.warning("there is no Deployment of that name", gate=gate.name, deployment=gate.deployment)
            return None
        if self.settings.dry_run and entry is not None:
            entry = follow(found, entry, now)  # the gate observes, so other clients set the replicas
        pods = deployments.read_pods(self.api, found)
        return GateState(
            gate=gate,
            deployment=found,
            ownership=ownership_of(found, entry, scalers(gate.namespace).get(gate.deployment), now),
            used_mib=used_mib(readings, pods),
            nodes=frozenset(node for node in pods.values() if node is not None),
        )

    def _answered(self, states: Sequence[GateState], done: Collection[str]) -> list[GateState]:
        """Returns the states with the results of the workloads' probes. Skips the workloads in `done`."""
        now = self.clock.now()

        def answered(state: GateState) -> GateState:
            if state.gate.name in done:
                return state
            answer = judged(lambda: state.gate.demand.answer(now, self.ask))
            if isinstance(answer, Unjudged):
                return replace(state, problem=answer.why)
            return replace(state, answer=answer)

        with self.threads(PROBES) as probes:
            return list(probes.map(answered, states))

    def _carry_out(self, record: Record, intents: Sequence[Intent], now: int, began: float) -> Record | None:
        """Writes the intents into the journal, reports them, and scales the Deployments.

        Returns the journal, or None if another run has changed it since it was read. Raises ApiError.
        """
        written = self._write(record, intents, now, acts=not self.settings.dry_run)
        if written is None:
            self.log.warning("skipped: another run of the gate updated the journal in the meantime")
            return None
        self._report(intents)
        if self.settings.dry_run:
            return written
        return self._act(written, [intent for intent in intents if intent.act is not Action.KEEP], now, began)

    def _write(self, record: Record, intents: Sequence[Intent], now: int, *, acts: bool) -> Record | None:
        """Writes the journal, with the acts of the intents or without. Returns None if another run has changed the
        journal since it was read. Raises ApiError.
        """
        declared_gates = {gate.name for gate in self.settings.gates}
        content = {name: entry for name, entry in record.content.items() if name in declared_gates}
        for intent in intents:
            entry = entry_after(intent, now, acts=acts)
            if entry is not None:
                content[intent.gate.name] = asdict(entry)
        return record if content == record.content else self._journal.write(content, after=record)

    def _report(self, intents: Sequence[Intent]) -> None:
        for intent in intents:
            report.log_line(intent, self.log)
            if not intent.signal.ripe:
                continue
            if intent.signal.act is Action.KEEP:
                self._record(report.keep_event(intent))
            elif self.settings.dry_run:
                self._record(report.act_event(intent, dry_run=True))

    def _act(self, record: Record, intents: Sequence[Intent], now: int, began: float) -> Record:
        """Scales the Deployments of these intents. Writes an Event for each request that the API server refuses. Raises
        ApiError if the API server does not answer.
        """
        for intent in intents:
            name = intent.gate.name
            skipped = judged(partial(self._scale, intent, began))
            if isinstance(skipped, Unjudged):
                # The journal keeps the act, because the API server may have scaled the Deployment before the error.
                self.log.error(f"could not {intent.act}: {skipped.why}", gate=name)
                self._record(report.refused_event(intent, skipped.why))
            elif skipped is not None:
                self.log.warning(f"skipped: {skipped}", gate=name)
                record = self._write(record, [intent], now, acts=False) or record
            else:
                self.log.info(f"did {intent.act}", gate=name, cause=intent.signal.cause, why=intent.signal.why)
                self._record(report.act_event(intent, dry_run=False))
        return record

    def _scale(self, intent: Intent, began: float) -> str | None:
        """Scales one Deployment, or returns the reason why it did not. Raises ApiError."""
        if self.clock.monotonic() - began > FRESH_SECONDS:
            return "the API took so long that the sample is stale"
        found, replicas = intent.state.deployment, 1 if intent.act is Action.OPEN else 0
        try:
            deployments.scale(self.api, found, replicas)
        except ApiError as error:
            if not error.outdated:
                raise
            # The answer to an earlier, successful attempt may have been lost.
            now = deployments.read(self.api, found.namespace, found.name)
            return None if now is not None and now.replicas == replicas else "the Deployment has changed"
        return None

    def _record(self, event: Event | None) -> None:
        if event is None or event in self.reported:
            return
        self.reported.add(event)
        recorder = Recorder(api=self.api, controller=names.GATE, instance=self.settings.pod_name)
        recorder.try_record(event, self.clock.now(), self.log)

    @property
    def _journal(self) -> Journal:
        return Journal(api=self.api, namespace=self.settings.ledger_namespace, name=names.journal(names.GATE))


def _shown(nodes: Iterable[Node], ledger: Ledger) -> Mapping[str, object]:
    """Returns the fields of each node on which its telemetry depends."""
    return {node.name: (node.labels, node.annotations.get(ledger.names.device_excluded)) for node in nodes}


def _unreadable(gate: GateConfig, entry: JournalEntry | None, why: str) -> GateState | None:
    """Returns the workload's state with the replicas in its journal entry, so that other workloads do not get its
    memory. Returns None if the workload has no journal entry.
    """
    if entry is None:
        return None
    left = Deployment(
        namespace=gate.namespace,
        name=gate.deployment,
        uid=entry.uid,
        generation=entry.generation,
        replicas=entry.replicas,
    )
    return GateState(gate=gate, deployment=left, ownership=Ownership(entry=entry, unreadable=why))


def _entries(record: Record) -> dict[str, JournalEntry]:
    """Returns the journal's entries by workload. Raises JournalError."""
    try:
        return {name: decode(JournalEntry, entry, name, ignored=[]) for name, entry in record.content.items()}
    except DecodeError as error:
        raise JournalError(f"ConfigMap {names.journal(names.GATE)}: {error}; delete its data to start over") from None
