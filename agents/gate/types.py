"""The types for an on-demand workload's observed state, and for the gate's intents. Units: whole MiB of GPU memory,
whole seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agents.gate.config import GateConfig
from agents.gate.deployments import Deployment
from agents.gate.ownership import Ownership
from agents.gate.probes import ProbeResult


class Action(StrEnum):
    OPEN = "open"
    CLOSE = "close"
    KEEP = "keep"


class Cause(StrEnum):
    """The reason for the gate's signal about a workload. Each cause has a fixed text."""

    ROOM = "there is demand, and room"
    NO_ROOM = "there is demand, but no room"
    COOL_DOWN = "there is demand, and it was closed recently"
    BLIND = "there is demand, but no telemetry"
    DEMAND = "there is demand"
    NO_DEMAND = "there is no demand"
    ASKED_BACK = "another has demand, and needs its memory"
    IDLE = "there is no demand, but not for long enough yet"
    NO_ANSWER = "whether there is demand is not known"
    PRESSURE = "a device is under its floor"
    SEAT = "a seat needs its memory"
    UNDER_WAY = "a scaling was started and is not visible yet"
    OTHER = "somebody else scales it"
    UNREADABLE = "it cannot be read"


@dataclass(frozen=True, kw_only=True)
class Signal:
    """The result of one sample for a workload, and the number of samples in a row with this result. The gate acts
    after `needed` samples in a row.
    """

    act: Action
    cause: Cause
    why: str
    needed: int = 1
    samples: int = 1

    @property
    def ripe(self) -> bool:
        return self.samples >= self.needed


@dataclass(frozen=True, kw_only=True)
class GateState:
    """The observed state of an on-demand workload. `used_mib` is the memory that the workload's pods use, by the
    device's UUID. `nodes` are the nodes of the workload's pods.

    Terminating pods of the workload do not count. If the workload's probe failed, `answer` is None and `problem` is the
    reason. `agreed` is the signal of the last sample.
    """

    gate: GateConfig
    deployment: Deployment
    ownership: Ownership
    answer: ProbeResult | None = None
    problem: str = ""
    used_mib: Mapping[str, int] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()
    agreed: Signal | None = None

    @property
    def open(self) -> bool:
        """Returns True if the workload runs and the gate is permitted to stop it."""
        return self.ownership.own and self.deployment.replicas == 1

    @property
    def to_load_mib(self) -> int:
        """Returns the MiB that the workload's pods can still allocate: their need minus their use."""
        replicas, entry = self.deployment.replicas, self.ownership.entry
        if self.ownership.under_way and entry is not None:
            replicas = max(replicas, entry.replicas)
        return max(0, self.gate.need_mib * replicas - sum(self.used_mib.values()))

    def unchanged_for(self, now: int) -> int | None:
        """Returns the seconds since the gate last scaled the Deployment, or None if the gate has never scaled it."""
        entry = self.ownership.entry
        return None if entry is None or entry.changed_at is None else _elapsed(entry.changed_at, now)

    def idle_for(self, now: int) -> int:
        """Returns the seconds since the demand ended, or 0 if there is demand or the probe failed."""
        entry = self.ownership.entry
        return 0 if entry is None or entry.idle_since is None else _elapsed(entry.idle_since, now)


@dataclass(frozen=True, kw_only=True)
class Intent:
    """The observed state of a workload, and the signal of the last sample for it."""

    state: GateState
    signal: Signal

    @property
    def gate(self) -> GateConfig:
        return self.state.gate

    @property
    def act(self) -> Action:
        """Returns the gate's action for the workload at this time."""
        return self.signal.act if self.signal.ripe else Action.KEEP


def _elapsed(since: int, now: int) -> int:
    """Returns the seconds since `since`, or 0 if `since` is in the future."""
    return max(0, now - since)
