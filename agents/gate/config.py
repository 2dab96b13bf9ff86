"""The gates as the stack declares them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.gate import probes
from agents.gate.probes import Demand, Window
from tenancy.decode import DecodeError, decode


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The Deployment behind a gate and when it is let in. Only `samples` in a row that agree change anything."""

    name: str
    namespace: str
    deployment: str
    pool: str
    need_mib: int
    margin_mib: int
    samples: int
    idle_seconds: int
    cool_down_seconds: int


@dataclass(frozen=True, kw_only=True)
class GateConfig(Terms):
    """One gate. It opens if there is demand, and need, floor and margin are free on every device."""

    demand: Demand

    @property
    def longest_idle_seconds(self) -> int:
        """The idle time after which it closes; 0 at the end of a window."""
        return 0 if isinstance(self.demand, Window) else self.idle_seconds


@dataclass(frozen=True, kw_only=True)
class _Shape(Terms):
    """A gate as JSON has it."""

    demand: Mapping[str, object]


def declared(value: str) -> tuple[GateConfig, ...]:
    """The gates in GATES, a JSON list. Raises DecodeError."""
    try:
        shapes = json.loads(value)
    except ValueError as error:
        raise DecodeError([f"GATES: must be a JSON list: {error}"]) from None
    return tuple(map(_gate, decode(tuple[_Shape, ...], shapes, "GATES")))


def _gate(shape: _Shape) -> GateConfig:
    fields: dict[str, Any] = {**vars(shape), "demand": probes.parse(shape.demand, f"GATES.{shape.name}.demand")}
    return GateConfig(**fields)
