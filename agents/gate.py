"""gate: tells which on-demand tenants there is room and work for (seed 000).

It reports and does not scale: what it says is what it would do.
"""

import http.client
import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from agents import demand, ledger, telemetry
from agents.api import Api, ApiError, in_cluster
from agents.clock import Clock
from agents.demand import ProbeError
from agents.environment import PORT, RUN_SECONDS, SECONDS, read, report_only, text, variable
from agents.fetch import FetchError
from agents.log import Log
from agents.nodes import read_nodes
from agents.slack import Act, Entrance, Gate, Intent, decide
from tenancy.decode import DecodeError, decode


def gates(value: str) -> tuple[Gate, ...]:
    """GATES, a JSON list. Raises DecodeError."""
    try:
        shapes = json.loads(value)
    except ValueError as error:
        raise DecodeError([f"GATES: must be a JSON list: {error}"]) from None
    if not isinstance(shapes, list):
        raise DecodeError([f"GATES: must be a JSON list (got {value!r})"])
    problems: list[str] = []
    found = []
    for index, shape in enumerate(shapes):
        try:
            found.append(_gate(shape, f"GATES.{index}"))
        except DecodeError as error:
            problems.extend(error.problems)
    if problems:
        raise DecodeError(problems)
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """A gate before its demand is told apart by kind."""

    name: str
    namespace: str
    deployment: str
    pool: str
    need_mib: int
    margin_mib: int
    samples: int
    demand: Mapping[str, object]

    def __post_init__(self) -> None:
        if self.need_mib < 1 or self.samples < 1 or self.margin_mib < 0:
            raise ValueError("need_mib and samples must be at least 1, margin_mib at least 0")


def _gate(data: object, path: str) -> Gate:
    shape = decode(_Shape, data, path)
    fields: dict[str, Any] = {**vars(shape), "demand": demand.parse(shape.demand, f"{path}.demand")}
    return Gate(**fields)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """GATES is the list of gates, in the order in which they are served."""

    ledger_namespace: str = variable(text)
    exporter_namespace: str = variable(text)
    exporter_port: int = variable(PORT)
    dry_run: bool = variable(report_only)
    interval_seconds: int = variable(SECONDS)
    run_seconds: int = variable(RUN_SECONDS)
    gates: tuple[Gate, ...] = variable(gates)


def start(environ: Mapping[str, str], log: Log) -> int:
    """The exit status of a run under `environ`. Raises AgentError."""
    settings = read(Settings, environ)
    clock = Clock()
    with closing(Api(in_cluster(environ), clock=clock)) as api:
        return run(settings, api, clock, log)


def run(settings: Settings, api: Api, clock: Clock, log: Log) -> int:
    """0 if the last pass got its answers from the API, else 1. Raises AgentError."""
    log.info("starts", **asdict(settings))
    status = 0
    agreed: dict[str, tuple[Act, int]] = {}
    for _ in clock.passes(run_seconds=settings.run_seconds, interval_seconds=settings.interval_seconds):
        try:
            intents = _pass(settings, api, clock, log)
            agreed = {intent.gate.name: _streak(intent, agreed.get(intent.gate.name)) for intent in intents}
            for intent in intents:
                _report(intent, agreed[intent.gate.name][1], log)
            status = 0
        except ApiError as error:
            if not error.transient:
                raise
            log.error(str(error))
            status, agreed = 1, {}
    return status


def _streak(intent: Intent, before: tuple[Act, int] | None) -> tuple[Act, int]:
    """The act and for how many samples in a row it stands."""
    return intent.act, before[1] + 1 if before and before[0] is intent.act else 1


def _pass(settings: Settings, api: Api, clock: Clock, log: Log) -> tuple[Intent, ...]:
    stored = ledger.read(api, settings.ledger_namespace)
    if stored is None or stored.deleting:
        log.info("nothing to do: there is no ledger")
        return ()
    readings = telemetry.read(
        api,
        stored.ledger().pools,
        read_nodes(api),
        namespace=settings.exporter_namespace,
        port=settings.exporter_port,
    )
    return decide([_entrance(api, gate, clock) for gate in settings.gates], readings)


def _entrance(api: Api, gate: Gate, clock: Clock) -> Entrance:
    try:
        scale = api.get(f"/apis/apps/v1/namespaces/{gate.namespace}/deployments/{gate.deployment}/scale")
    except ApiError as error:
        if error.status != http.client.NOT_FOUND:
            raise
        return Entrance(gate=gate, problem=str(error))
    try:
        answer = demand.ask(gate.demand, clock.now())
    except (ProbeError, FetchError) as error:
        return Entrance(gate=gate, problem=str(error))
    return Entrance(gate=gate, replicas=scale["spec"].get("replicas", 0), answer=answer)


def _report(intent: Intent, samples: int, log: Log) -> None:
    fields = {"gate": intent.gate.name, "why": intent.why, "samples": samples, "needed": intent.gate.samples}
    if intent.act is Act.KEEP:
        log.info("keep", **fields)
    elif samples < intent.gate.samples:
        log.info(f"would {intent.act} if more samples agree", **fields)
    else:
        log.info(f"would {intent.act}", **fields)
