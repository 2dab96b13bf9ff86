"""The gates as the stack declares them."""

import json
from dataclasses import dataclass

from agents.gate.probes import Demand, Window
from tenancy.decode import DecodeError, decode


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """Declares one gate: its Deployment, and when it opens. It needs demand, and free memory on every device.

    The free memory must cover need, floor and margin. Only `samples` in a row that agree change anything.
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
        """Returns the idle time after which the gate closes the Deployment; 0 at the end of a window."""
        return 0 if isinstance(self.demand, Window) else self.idle_seconds


def declared(value: str) -> tuple[GateConfig, ...]:
    """Returns the gates declared in GATES, a JSON list. Raises DecodeError."""
    try:
        return decode(tuple[GateConfig, ...], json.loads(value), "GATES")
    except json.JSONDecodeError as error:
        raise DecodeError([f"GATES: must be a JSON list: {error}"]) from None
