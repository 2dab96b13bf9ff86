"""gate: tells which on-demand tenants there is room and work for (seed 000).

It reports and does not scale: what it says is what it would do.
"""

import http.client
import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from agents import demand, sampling
from agents.api import Api, ApiError, in_cluster
from agents.clock import Clock
from agents.demand import ProbeError
from agents.environment import read, variable
from agents.fetch import FetchError
from agents.log import Log
from agents.slack import Act, Entrance, Gate, Intent, Terms, decide
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
class _Shape(Terms):
    """A gate before its demand is told apart by kind."""

    demand: Mapping[str, object]


def _gate(data: object, path: str) -> Gate:
    shape = decode(_Shape, data, path)
    fields: dict[str, Any] = {**vars(shape), "demand": demand.parse(shape.demand, f"{path}.demand")}
    return Gate(**fields)


@dataclass(frozen=True, kw_only=True)
class Settings(sampling.Settings):
    """GATES is the list of gates; the first of it that needs slack gets it. The component writes it by name."""

    gates: tuple[Gate, ...] = variable(gates)


def start(environ: Mapping[str, str], log: Log) -> int:
    """The exit status of a run under `environ`. Raises AgentError."""
    settings = read(Settings, environ)
    clock = Clock()
    with closing(Api(in_cluster(environ), clock=clock)) as api:
        return run(settings, api, clock, log)


def run(settings: Settings, api: Api, clock: Clock, log: Log) -> int:
    """0 if the last pass got its answers from the API, else 1. Raises AgentError."""
    return sampling.run(settings, clock, log, _Samples(settings, api, clock, log).take)


@dataclass
class _Samples:
    """`agreed` is each gate's last act, and for how many samples in a row it stands."""

    settings: Settings
    api: Api
    clock: Clock
    log: Log
    agreed: Mapping[str, tuple[Act, int]] = field(default_factory=dict)

    def take(self) -> None:
        before, self.agreed = self.agreed, {}  # a sample that fails agrees with none
        readings = sampling.sample(self.settings, self.api, self.log)
        if readings is None:
            return
        intents = decide([_entrance(self.api, gate, self.clock) for gate in self.settings.gates], readings)
        self.agreed = {intent.gate.name: _streak(intent, before.get(intent.gate.name)) for intent in intents}
        for intent in intents:
            _report(intent, self.agreed[intent.gate.name][1], self.log)


def _streak(intent: Intent, before: tuple[Act, int] | None) -> tuple[Act, int]:
    """The act and for how many samples in a row it stands."""
    return intent.act, before[1] + 1 if before and before[0] is intent.act else 1


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
