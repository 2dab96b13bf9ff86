"""The on-demand workloads that the stack file declares."""

import json
from dataclasses import dataclass

from agents.gate.probes import Demand, Window
from tenancy.decode import DecodeError, decode


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """One on-demand workload: a Deployment, and the conditions for scaling the Deployment between 0 and 1.

    The gate starts the workload if there is demand and every device has enough free memory for `need_mib`, the floor
    and `margin_mib`. The gate acts only after `samples` samples in a row with the same result.
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
        """Returns the idle time after which the gate stops the workload. For a workload with a Window as its probe, the
        idle time is 0.
        """
        return 0 if isinstance(self.demand, Window) else self.idle_seconds


def declared(value: str) -> tuple[GateConfig, ...]:
    """Returns the on-demand workloads in GATES, a JSON list. Raises DecodeError."""
    try:
        return decode(tuple[GateConfig, ...], json.loads(value), "GATES")
    except json.JSONDecodeError as error:
        raise DecodeError([f"GATES: must be a JSON list: {error}"]) from None
