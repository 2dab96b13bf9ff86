"""The gates that the stack file declares."""

import json
from dataclasses import dataclass

from agents.gate.probes import Demand, Window
from tenancy.decode import DecodeError, decode


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """One gate: a Deployment, and the conditions for scaling it between 0 and 1.

    The gate opens while there is demand, and while every device has enough free memory for the need, the floor and the
    margin. The gate acts only after `samples` samples in a row with the same result.
    """

    name: str
    namespace: str
    deployment: str
    pool: str
    need_mib: int
    margin_mib: int
    samples: int
    idle_seconds: int
    cool_down_seconds: int
    demand: Demand

    @property
    def longest_idle_seconds(self) -> int:
        """Returns the idle time after which the gate closes. For a window, this time is 0."""
        return 0 if isinstance(self.demand, Window) else self.idle_seconds


def declared(value: str) -> tuple[GateConfig, ...]:
    """Returns the gates declared in GATES, a JSON list. Raises DecodeError."""
    try:
        return decode(tuple[GateConfig, ...], json.loads(value), "GATES")
    except json.JSONDecodeError as error:
        raise DecodeError([f"GATES: must be a JSON list: {error}"]) from None
