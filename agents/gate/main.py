"""gate: scales on-demand tenants 0 to 1 into real slack, and back (record 0000).

A pass reads the journal, the devices, the Deployments and their demand, lets `admittance.decide` decide, writes the
journal and then acts: of two runs at once one writes, and the other does nothing.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime

from agents.gate import deployments, report
from agents.gate.config import GateConfig, declared
from agents.gate.decide import decide, entry_after
from agents.gate.headroom import used_mib
from agents.gate.ownership import JournalEntry, follow, standing
from agents.gate.probes import Demand, ProbeError, ProbeResult, ask
from agents.gate.types import Action, GateState, Intent, Streak
from agents.kube.client import Api, ApiError, in_cluster
from agents.kube.events import Event, Recorder
from agents.kube.journal import Journal, JournalError, Record
from agents.kube.nodes import read_nodes
from agents.runtime.clock import Clock, Moment
from agents.runtime.http_client import FetchError
from agents.runtime.log import Log
from agents.runtime.settings import read, variable
from agents.telemetry import sampling
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.reading import FRESH_SECONDS
from agents.telemetry.sampling import UnsoundError
from tenancy import names
from tenancy.decode import DecodeError, decode

# Probes at once: one that gets no answer should not make the others late.
PROBES = 8


@dataclass(frozen=True, kw_only=True)
class Settings(sampling.Settings):
    """GATES is the list of gates; the first of it that needs slack gets it. The component writes it by name."""

    gates: tuple[GateConfig, ...] = variable(declared)


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
    """`agreed` is what each gate's last samples agree on, `readings` and `moment` the last sample's; `reported`: the
    events of this run."""

    settings: Settings
    api: Api
    clock: Clock
    log: Log
    agreed: Mapping[str, Streak] = field(default_factory=dict)
    readings: Mapping[str, NodeTelemetry] = field(default_factory=dict)
    moment: Moment | None = None
    reported: set[Event] = field(default_factory=set)

    def take(self) -> None:
        """One sample. Raises AgentError."""
        before, self.agreed = self.agreed, {}  # a sample that fails agrees with none
        record = self._journal.read()
        began, now = self.clock.monotonic(), int(self._now().timestamp())
        readings = self._measure()
        if readings is None:
            return
        intents = decide(self._entrances(_entries(record), readings, before, now), readings, now)
        written = self._write(record, intents, now)
        if written is None:
            self.log.warning("skipped: another run of the gate updated the journal in the meantime")
            return
        self.agreed = {intent.gate.name: intent.agreed for intent in intents}
        self._report(intents)
        if not self.settings.dry_run:
            self._act(written, [intent for intent in intents if intent.act is not Action.KEEP], now, began)

    def _measure(self) -> tuple[NodeTelemetry, ...] | None:
        """None where there is no ledger. Raises AgentError."""
        before, self.readings = self.readings, {}
        ledger = sampling.read_ledger(self.settings, self.api, self.log)
        if ledger is None:
            return None
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
        gates = self.settings.gates
        scalers = {
            namespace: deployments.read_scalers(self.api, namespace)
            for namespace in dict.fromkeys(gate.namespace for gate in gates)
        }
        demands = self._ask([gate.demand for gate in gates])
        entrances = []
        for gate, answered in zip(gates, demands, strict=True):
            found = deployments.read(self.api, gate.namespace, gate.deployment)
            if found is None:
                self.log.warning("there is no Deployment of that name", gate=gate.name, deployment=gate.deployment)
                continue
            entry = entries.get(gate.name)
            if self.settings.dry_run and entry is not None:
                entry = follow(found, entry, now)  # what does not act has left nothing as it was
            entrances.append(
                GateState(
                    gate=gate,
                    deployment=found,
                    standing=standing(found, entry, scalers[gate.namespace].get(gate.deployment), now),
                    answer=answered.answer,
                    problem=answered.problem,
                    used_mib=used_mib(readings, deployments.read_pods(self.api, found)),
                    agreed=agreed.get(gate.name),
                )
            )
        return entrances

    def _ask(self, asked: Sequence[Demand]) -> list[_Demand]:
        now = self.clock.now()

        def answer(signal: Demand) -> _Demand:
            try:
                return _Demand(ask(signal, now))
            except (ProbeError, FetchError) as error:
                return _Demand(None, str(error))

        with ThreadPoolExecutor(PROBES) as probes:
            return list(probes.map(answer, asked))

    def _write(self, record: Record, intents: Sequence[Intent], now: int) -> Record | None:
        """Before any act; None where another run wrote since the record was read. Raises ApiError."""
        entries = {intent.gate.name: entry_after(intent, now, acts=not self.settings.dry_run) for intent in intents}
        content = {name: asdict(entry) for name, entry in entries.items() if entry is not None}
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

    def _act(self, record: Record, intents: Sequence[Intent], now: int, began: float) -> None:
        """Raises ApiError once all were tried."""
        failure: ApiError | None = None
        for intent in intents:
            name = intent.gate.name
            if self.clock.monotonic() - began > FRESH_SECONDS:
                self.log.warning("skipped: the API took so long that the sample is stale", gate=name)
                record = self._undo(record, intent, now)
                continue
            try:
                done = self._carry_out(intent)
            except ApiError as error:
                failure = error  # whether it was done is not known; the journal says that it was begun
                continue
            if done:
                self.log.info(f"did {intent.act}", gate=name, cause=intent.lean.cause, why=intent.lean.why)
                self._record(report.act_event(intent, dry_run=False))
            else:
                self.log.info("the Deployment has changed; retrying", gate=name)
                record = self._undo(record, intent, now)
        if failure is not None:
            raise failure

    def _carry_out(self, intent: Intent) -> bool:
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


def _entries(record: Record) -> dict[str, JournalEntry]:
    """Raises JournalError."""
    try:
        return {name: decode(JournalEntry, entry, name) for name, entry in record.content.items()}
    except DecodeError as error:
        raise JournalError(f"ConfigMap {names.journal(names.GATE)}: {error}; delete its data to start over") from None
