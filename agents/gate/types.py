"""A gate's observed state and the intent for it. Units: whole MiB of GPU memory, whole seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agents.gate.config import GateConfig
from agents.gate.deployments import Deployment
from agents.gate.ownership import Ownership
from agents.gate.probes import ProbeResult


class Action(StrEnum):
    """What a gate does."""

    OPEN = "open"
    CLOSE = "close"
    KEEP = "keep"


class Cause(StrEnum):
    """Why, in words that stay the same as long as the cause does."""

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
    """What one sample says about a gate; `needed` in a row make it an act."""

    act: Action
    cause: Cause
    why: str
    needed: int = 1


@dataclass(frozen=True, kw_only=True)
class Streak:
    """The last samples of a gate that agree, and how many they are."""

    act: Action
    cause: Cause
    samples: int


@dataclass(frozen=True, kw_only=True)
class GateState:
    """A gate as it was found. `used_mib` is what its pods measurably hold, by the device's uuid; `nodes` are those that
    they are bound to. Pods that are going are not among them.

    `answer` None: the probe failed, and `problem` says why.
    """

    gate: GateConfig
    deployment: Deployment
    standing: Ownership
    answer: ProbeResult | None = None
    problem: str = ""
    used_mib: Mapping[str, int] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()
    agreed: Streak | None = None

    @property
    def open(self) -> bool:
        """Open, and the gate's to close."""
        return self.standing.own and self.deployment.replicas == 1

    @property
    def claimed_mib(self) -> int:
        """What its pods may still take beyond what they hold: a model that loads holds its slack from the start."""
        replicas, entry = self.deployment.replicas, self.standing.entry
        if self.standing.under_way and entry is not None:
            replicas = max(replicas, entry.replicas)
        return max(0, self.gate.need_mib * replicas - sum(self.used_mib.values()))

    def unchanged_for(self, now: int) -> int | None:
        """Seconds since the gate last scaled it; None where it never did."""
        entry = self.standing.entry
        return None if entry is None or entry.changed_at is None else _elapsed(entry.changed_at, now)

    def idle_for(self, now: int) -> int:
        """Seconds since nothing asked for it any more; 0 where something does, as far as is known."""
        entry = self.standing.entry
        return 0 if entry is None or entry.idle_since is None else _elapsed(entry.idle_since, now)


@dataclass(frozen=True, kw_only=True)
class Intent:
    """What a sample says about a gate, for how many samples in a row, and what is to be done."""

    entrance: GateState
    lean: Signal
    samples: int

    @property
    def gate(self) -> GateConfig:
        return self.entrance.gate

    @property
    def ripe(self) -> bool:
        return self.samples >= self.lean.needed

    @property
    def act(self) -> Action:
        """What is to be done now."""
        return self.lean.act if self.ripe else Action.KEEP

    @property
    def agreed(self) -> Streak:
        return Streak(act=self.lean.act, cause=self.lean.cause, samples=self.samples)


def _elapsed(since: int, now: int) -> int:
    """Never negative: a clock that was set back makes a gate wait, not act."""
    return max(0, now - since)
