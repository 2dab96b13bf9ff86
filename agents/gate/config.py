"""The gates as the stack declares them: Deployment, pool, needs, probe, times."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.gate import probes
from agents.gate.probes import Demand, Window
from tenancy.decode import DecodeError, decode


@dataclass(frozen=True, kw_only=True)
class Terms:
    """On what terms a gate lets its Deployment in; only `samples` in a row that agree change anything."""

    name: str
    namespace: str
    deployment: str
    pool: str
    need_mib: int
    margin_mib: int
    samples: int
    idle_seconds: int
    cool_down_seconds: int

    def __post_init__(self) -> None:
        if self.need_mib < 1 or self.samples < 1 or min(self.margin_mib, self.idle_seconds, self.cool_down_seconds) < 0:
            raise ValueError(
                "need_mib and samples must be at least 1; margin_mib, idle_seconds and cool_down_seconds at least 0"
            )


@dataclass(frozen=True, kw_only=True)
class GateConfig(Terms):
    """One tenant's gate: lets `deployment` in when every device has need, floor and margin free and there is demand."""

    demand: Demand

    @property
    def grace_seconds(self) -> int:
        """For how long it stays open without demand. A window ends when it ends."""
        return 0 if isinstance(self.demand, Window) else self.idle_seconds


def declared(value: str) -> tuple[GateConfig, ...]:
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


def _gate(data: object, path: str) -> GateConfig:
    shape = decode(_Shape, data, path)
    fields: dict[str, Any] = {**vars(shape), "demand": probes.parse(shape.demand, f"{path}.demand")}
    return GateConfig(**fields)
