"""The gates as the stack declares them."""

import json
from dataclasses import dataclass

from agents.gate.probes import Demand, Window
from tenancy.decode import DecodeError, decode


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """A Deployment, and when it is let in: if there is demand, and need, floor and margin are free on every device.

    Only `samples` in a row that agree change anything.
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
        """The idle time after which it closes; 0 at the end of a window."""
        return 0 if isinstance(self.demand, Window) else self.idle_seconds


def declared(value: str) -> tuple[GateConfig, ...]:
    """The gates in GATES, a JSON list. Raises DecodeError."""
    try:
        return decode(tuple[GateConfig, ...], json.loads(value), "GATES")
    except json.JSONDecodeError as error:
        raise DecodeError([f"GATES: must be a JSON list: {error}"]) from None
