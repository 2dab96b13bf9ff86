"""gate: scales on-demand tenants 0 to 1 into real slack, and back (record 0000).

A pass reads the journal, the devices, the pods, the Deployments and their demand, lets `decide` decide, writes the
journal and then acts: of two runs at once one writes, and the other does nothing. What one gate's namespace or probe
refuses is that gate's trouble, and told on its Deployment: the others go on.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime

from agents.gate import deployments, report
from agents.gate.config import GateConfig, declared
from agents.gate.decide import decide, entry_after
from agents.gate.deployments import Deployment
from agents.gate.headroom import used_mib
from agents.gate.ownership import JournalEntry, Ownership, follow, standing
from agents.gate.pods import Seating, read_seating, with_ended
from agents.gate.probes import Demand, ProbeError, ProbeResult, ask
from agents.gate.types import Action, GateState, Intent, Streak
from agents.kube.client import Api, ApiError, in_cluster
from agents.kube.events import Event, Recorder
from agents.kube.journal import Journal, JournalError, Record
from agents.kube.nodes import read_nodes
from agents.runtime.clock import Clock, Moment
from agents.runtime.http_client import FetchError
from agents.runtime.log import Log
from agents.runtime.settings import SECONDS, read, variable
from agents.telemetry import sampling
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.reading import FRESH_SECONDS
from agents.telemetry.sampling import UnsoundError
from tenancy import names
from tenancy.decode import DecodeError, decode
from tenancy.ledger import Ledger

# Probes at once: one that gets no answer should not make the others late.
PROBES = 32


@dataclass(frozen=True, kw_only=True)
class Settings(sampling.Settings):
    """GATES is the list of gates; the first of it that needs slack gets it. The component writes it by name. So long
    after its start as STARTING_SECONDS a pod may still load what it will use."""

    gates: tuple[GateConfig, ...] = variable(declared)
    starting_seconds: int = variable(SECONDS)


def start(environ: Mapping[str, str], log: Log) -> int:
    """The exit status of a run under `environ`. Raises AgentError."""
    settings = read(Settings, environ)
    clock = Clock()
    with closing(Api(in_cluster(environ), clock=clock)) as api:
        return run(settings, api, clock, log)


def run(settings: Settings, api: Api, clock: Clock, log: Log) -> int:
    """0 if the last pass got its answers from the API, else 1. Raises AgentError."""
    return sampling.run(settings, clock, log, _Run(settings=settings, api=api, clock=clock, log=log).take)


@dataclass(frozen=True)
class _Demand:
    """What a probe answered; without an answer, why."""

    answer: ProbeResult | None
    problem: str = ""


@dataclass(kw_only=True)
class _Run:
    """`agreed` is what each gate's last samples agree on; `readings`, `seating` and `moment` are the last sample's;
    `reported`: the events of this run."""

    settings: Settings
    api: Api
    clock: Clock
    log: Log
    agreed: Mapping[str, Streak] = field(default_factory=dict)
    readings: Mapping[str, NodeTelemetry] = field(default_factory=dict)
    moment: Moment | None = None
    seating: Seating = field(default_factory=Seating)
    reported: set[Event] = field(default_factory=set)

    def take(self) -> None:
        """One sample: first who must leave for others, which no probe may delay, then all by their demand. Raises
        AgentError."""
        before, self.agreed = self.agreed, {}  # a sample that fails agrees with none
        record = self._journal.read()
        began, now = self.clock.monotonic(), int(self._now().timestamp())
        ledger = sampling.read_ledger(self.settings, self.api, self.log)
        if ledger is None:
            return
        readings = self._measure(ledger)
        pools = {gate.pool for gate in self.settings.gates}
        gated = [reading for reading in readings if reading.pool.name in pools]
        found = replace(
            read_seating(self.api, ledger, gated, self.log), starting_seconds=self.settings.starting_seconds
        )
        seating = with_ended(found, gated, self.seating, now)
        self.seating = seating
        entrances = self._entrances(_entries(record), readings, before, now)
        urgent = [each for each in decide(entrances, readings, seating, now) if each.act is Action.CLOSE]
        done = {intent.gate.name for intent in urgent}
        written = self._carry_out(record, urgent, now, began)
        if written is None:
            return
        intents = decide(self._answered(entrances, done), readings, seating, now)
        rest = [intent for intent in intents if intent.gate.name not in done]
        if self._carry_out(written, rest, now, began) is None:
            return
        self.agreed = {intent.gate.name: intent.agreed for intent in intents}

    def _measure(self, ledger: Ledger) -> tuple[NodeTelemetry, ...]:
        """Raises AgentError."""
        before, self.readings = self.readings, {}
        readings = sampling.read_telemetry(self.settings, self.api, self.clock, ledger, read_nodes(self.api))
        self.readings = {reading.node: reading for reading in readings}
        return tuple(replace(each, repeated=not each.is_new(before.get(each.node))) for each in readings)

    def _now(self) -> datetime:
        """Idleness, cool-down and windows depend on it. Raises UnsoundError where it cannot be believed."""
        before, now = self.moment, self.clock.now()
        self.moment = Moment(at=self.clock.monotonic(), server=self.api.time or now, local=now)
        problem = self.moment.problem(before)
        if problem is not None:
            raise UnsoundError(f"no gate is opened or closed: {problem}")
        return now

    def _entrances(
        self,
        entries: Mapping[str, JournalEntry],
        readings: Sequence[NodeTelemetry],
        agreed: Mapping[str, Streak],
        now: int,
    ) -> list[GateState]:
        """Each gate as it is, without its demand. Raises ApiError where no answer comes."""
        scalers = _Scalers(self.api)
        entrances = []
        for gate in self.settings.gates:
            entry = entries.get(gate.name)
            try:
                found = self._entrance(gate, entry, scalers, readings, now)
            except ApiError as error:
                if error.status is None:
                    raise
                self.log.error(f"it cannot be read: {error}", gate=gate.name)
                found = _unreadable(gate, entry, str(error))
            if found is not None:
                entrances.append(replace(found, agreed=agreed.get(gate.name)))
        return entrances

    def _entrance(
        self,
        gate: GateConfig,
        entry: JournalEntry | None,
        scalers: "_Scalers",
        readings: Sequence[NodeTelemetry],
        now: int,
    ) -> GateState | None:
        """None where there is no such Deployment. Raises ApiError."""
        found = deployments.read(self.api, gate.namespace, gate.deployment)
        if found is None:
            self.log.warning("there is no Deployment of that name", gate=gate.name, deployment=gate.deployment)
            return None
        if self.settings.dry_run and entry is not None:
            entry = follow(found, entry, now)  # what does not act has left nothing as it was
        pods = deployments.read_pods(self.api, found)
        return GateState(
            gate=gate,
            deployment=found,
            standing=standing(found, entry, scalers.of(gate), now),
            used_mib=used_mib(readings, pods),
            nodes=frozenset(node for node in pods.values() if node is not None),
        )

    def _answered(self, entrances: Sequence[GateState], done: Collection[str]) -> list[GateState]:
        """With what their probes answer; gates that are done with are not asked."""
        asked = [each for each in entrances if each.gate.name not in done]
        demands = zip(asked, self._ask([each.gate.demand for each in asked]), strict=True)
        answers = {each.gate.name: vars(demand) for each, demand in demands}
        return [replace(each, **answers.get(each.gate.name, {})) for each in entrances]

    def _ask(self, asked: Sequence[Demand]) -> list[_Demand]:
        now = self.clock.now()

        def answer(signal: Demand) -> _Demand:
            try:
                return _Demand(ask(signal, now))
            except (ProbeError, FetchError) as error:
                return _Demand(None, str(error))

        with ThreadPoolExecutor(PROBES) as probes:
            return list(probes.map(answer, asked))

    def _carry_out(self, record: Record, intents: Sequence[Intent], now: int, began: float) -> Record | None:
        """Writes the intents down, reports them, and does what is to be done; the journal as it is then. None where
        another run wrote it since it was read. Raises ApiError."""
        written = self._write(record, intents, now)
        if written is None:
            self.log.warning("skipped: another run of the gate updated the journal in the meantime")
            return None
        self._report(intents)
        if self.settings.dry_run:
            return written
        return self._act(written, [intent for intent in intents if intent.act is not Action.KEEP], now, began)

    def _write(self, record: Record, intents: Sequence[Intent], now: int) -> Record | None:
        """Before any act; None where another run wrote since the record was read. Raises ApiError."""
        declared_gates = {gate.name for gate in self.settings.gates}
        content = {name: entry for name, entry in record.content.items() if name in declared_gates}
        for intent in intents:
            entry = entry_after(intent, now, acts=not self.settings.dry_run)
            if entry is not None:
                content[intent.gate.name] = asdict(entry)
        return record if content == record.content else self._journal.write(content, after=record)

    def _report(self, intents: Sequence[Intent]) -> None:
        for intent in intents:
            report.tell(intent, self.log)
            if not intent.ripe:
                continue
            if intent.lean.act is Action.KEEP:
                self._record(report.keep_event(intent))
            elif self.settings.dry_run:
                self._record(report.act_event(intent, dry_run=True))

    def _act(self, record: Record, intents: Sequence[Intent], now: int, began: float) -> Record:
        """One that is refused is that gate's trouble. Raises ApiError where no answer comes."""
        for intent in intents:
            name = intent.gate.name
            if self.clock.monotonic() - began > FRESH_SECONDS:
                self.log.warning("skipped: the API took so long that the sample is stale", gate=name)
                record = self._undo(record, intent, now)
                continue
            try:
                done = self._scale(intent)
            except ApiError as error:
                if error.status is None:
                    raise
                # Whether it was done is not known; the journal says that it was begun.
                self.log.error(f"could not {intent.act}: {error}", gate=name)
                self._record(report.refused_event(intent, error))
                continue
            if done:
                self.log.info(f"did {intent.act}", gate=name, cause=intent.lean.cause, why=intent.lean.why)
                self._record(report.act_event(intent, dry_run=False))
            else:
                self.log.info("the Deployment has changed; retrying", gate=name)
                record = self._undo(record, intent, now)
        return record

    def _scale(self, intent: Intent) -> bool:
        """False where somebody changed the Deployment since it was read. Raises ApiError."""
        found, replicas = intent.entrance.deployment, 1 if intent.act is Action.OPEN else 0
        try:
            deployments.scale(self.api, found, replicas)
        except ApiError as error:
            if not error.outdated:
                raise
            # The answer to an attempt before this one may have been lost.
            now = deployments.read(self.api, found.namespace, found.name)
            return now is not None and now.replicas == replicas
        return True

    def _undo(self, record: Record, intent: Intent, now: int) -> Record:
        """Takes back what the journal says of an act that did not happen."""
        entry = entry_after(intent, now, acts=False)
        if entry is None:
            return record
        return self._journal.write({**record.content, intent.gate.name: asdict(entry)}, after=record) or record

    def _record(self, event: Event | None) -> None:
        if event is None or event in self.reported:
            return
        self.reported.add(event)
        recorder = Recorder(api=self.api, controller=names.GATE, instance=self.settings.pod_name)
        try:
            recorder.record(event, self.clock.now())
        except ApiError as error:
            self.log.warning(f"the event was not written: {error}")  # the act matters more than its record

    @property
    def _journal(self) -> Journal:
        return Journal(api=self.api, namespace=self.settings.ledger_namespace, name=names.journal(names.GATE))


class _Scalers:
    """What scales Deployments by itself, read once for each namespace of a sample."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._by_namespace: dict[str, Mapping[str, str]] = {}

    def of(self, gate: GateConfig) -> str | None:
        """Raises ApiError."""
        if gate.namespace not in self._by_namespace:
            self._by_namespace[gate.namespace] = deployments.read_scalers(self._api, gate.namespace)
        return self._by_namespace[gate.namespace].get(gate.deployment)


def _unreadable(gate: GateConfig, entry: JournalEntry | None, why: str) -> GateState | None:
    """As the gate left it, so that what it may use stays its own; None where it never did."""
    if entry is None:
        return None
    left = Deployment(
        namespace=gate.namespace,
        name=gate.deployment,
        uid=entry.uid,
        generation=entry.generation,
        replicas=entry.replicas,
    )
    return GateState(gate=gate, deployment=left, standing=Ownership(entry=entry, unreadable=why))


def _entries(record: Record) -> dict[str, JournalEntry]:
    """Raises JournalError."""
    try:
        return {name: decode(JournalEntry, entry, name, ignored=[]) for name, entry in record.content.items()}
    except DecodeError as error:
        raise JournalError(f"ConfigMap {names.journal(names.GATE)}: {error}; delete its data to start over") from None
