"""Defines the observed state of gates, and the intents. Units: whole MiB of GPU memory, whole seconds."""

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
    """The reason for a signal. Its text stays the same as long as the cause does."""

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
    """The outcome of one sample for a gate. After `needed` equal outcomes in a row the gate acts."""

    act: Action
    cause: Cause
    why: str
    needed: int = 1


@dataclass(frozen=True, kw_only=True)
class Streak:
    """The last samples of a gate that agree, and the number of these samples."""

    act: Action
    cause: Cause
    samples: int


@dataclass(frozen=True, kw_only=True)
class GateState:
    """A gate as it was found. `used_mib` is the use of its pods by the device's UUID.

    `nodes` are the nodes of its pods.

    Terminating pods are not counted. If `answer` is None, the probe failed and `problem` is the reason.
    """

    gate: GateConfig
    deployment: Deployment
    ownership: Ownership
    answer: ProbeResult | None = None
    problem: str = ""
    used_mib: Mapping[str, int] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()
    agreed: Streak | None = None

    @property
    def open(self) -> bool:
        """Returns True if the workload runs and the gate may close it."""
        return self.ownership.own and self.deployment.replicas == 1

    @property
    def to_load_mib(self) -> int:
        """Returns the MiB that the gate's pods may still load. A pod may load its whole need from its start."""
        replicas, entry = self.deployment.replicas, self.ownership.entry
        if self.ownership.under_way and entry is not None:
            replicas = max(replicas, entry.replicas)
        return max(0, self.gate.need_mib * replicas - sum(self.used_mib.values()))

    def unchanged_for(self, now: int) -> int | None:
        """Returns the seconds since the gate last scaled the Deployment; None if it never did."""
        entry = self.ownership.entry
        return None if entry is None or entry.changed_at is None else _elapsed(entry.changed_at, now)

    def idle_for(self, now: int) -> int:
        """Returns the seconds without demand; 0 if there is demand, or if the demand is not known."""
        entry = self.ownership.entry
        return 0 if entry is None or entry.idle_since is None else _elapsed(entry.idle_since, now)


@dataclass(frozen=True, kw_only=True)
class Intent:
    """A gate with the signal of a sample, and the number of samples in a row that gave this signal."""

    state: GateState
    signal: Signal
    samples: int

    @property
    def gate(self) -> GateConfig:
        return self.state.gate

    @property
    def ripe(self) -> bool:
        return self.samples >= self.signal.needed

    @property
    def act(self) -> Action:
        """Returns the act that is due now."""
        return self.signal.act if self.ripe else Action.KEEP

    @property
    def agreed(self) -> Streak:
        return Streak(act=self.signal.act, cause=self.signal.cause, samples=self.samples)


def _elapsed(since: int, now: int) -> int:
    """Returns the seconds since a time, never negative: after a clock was set back, a gate waits."""
    return max(0, now - since)
