"""Who may be let into a pool's real slack: the pure half of gate (seed 000). Units: whole MiB of GPU memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agents.demand import Answer, Demand
from agents.telemetry import MIB, NodeTelemetry


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

    def __post_init__(self) -> None:
        if self.need_mib < 1 or self.samples < 1 or self.margin_mib < 0:
            raise ValueError("need_mib and samples must be at least 1, margin_mib at least 0")


@dataclass(frozen=True, kw_only=True)
class Gate(Terms):
    """One tenant's gate: lets `deployment` in when a device has need, floor and margin free and there is demand."""

    demand: Demand


class Act(StrEnum):
    """What a gate would do."""

    OPEN = "open"
    CLOSE = "close"
    KEEP = "keep"


@dataclass(frozen=True)
class Intent:
    """What one sample says about a gate, and why."""

    gate: Gate
    act: Act
    why: str


@dataclass(frozen=True, kw_only=True)
class Entrance:
    """A gate as it was found: replicas and demand, or the problem for which one of them is not known."""

    gate: Gate
    replicas: int = 0
    answer: Answer | None = None
    problem: str | None = None


def decide(entrances: Sequence[Entrance], readings: Sequence[NodeTelemetry]) -> tuple[Intent, ...]:
    """What one sample says about each gate. Slack that one gate would take is no other's."""
    slack = {
        reading.pool.name: _Slack([r for r in readings if r.pool.name == reading.pool.name]) for reading in readings
    }
    return tuple(_intent(entrance, slack.get(entrance.gate.pool, _Slack([]))) for entrance in entrances)


class _Slack:
    """Free memory of a pool's devices, as far as no gate has taken it yet."""

    def __init__(self, readings: Sequence[NodeTelemetry]) -> None:
        blind = [f"{reading.node}: {reading.problem}" for reading in readings if reading.problem]
        self.problem = "; ".join(blind) if readings else "no node of the pool is measured"
        self.floor_mib = readings[0].pool.floor_mib if readings else 0
        self.free_mib = [device.free_bytes // MIB for reading in readings for device in reading.devices]

    @property
    def pressed(self) -> bool:
        return any(free_mib < self.floor_mib for free_mib in self.free_mib)

    def take(self, gate: Gate) -> str | None:
        """Takes the gate's need from the device with the most free memory; else why there is no room."""
        if self.problem:
            return f"no telemetry, so nobody is let in: {self.problem}"
        needed_mib = gate.need_mib + self.floor_mib + gate.margin_mib
        most_mib = max(self.free_mib)
        if most_mib < needed_mib:
            return f"no room: {most_mib} MiB are free, {needed_mib} are needed (need, floor and margin)"
        self.free_mib[self.free_mib.index(most_mib)] -= gate.need_mib
        return None


def _intent(entrance: Entrance, slack: _Slack) -> Intent:
    gate = entrance.gate
    if entrance.answer is None:
        return Intent(gate, Act.KEEP, entrance.problem or "the demand is not known")
    if entrance.replicas > 1:
        return Intent(gate, Act.KEEP, f"somebody else scaled it to {entrance.replicas}")
    if entrance.replicas == 1:
        if slack.pressed:
            return Intent(gate, Act.CLOSE, f"a device is under its floor of {slack.floor_mib} MiB")
        return Intent(gate, Act.KEEP if entrance.answer.wanted else Act.CLOSE, entrance.answer.why)
    if not entrance.answer.wanted:
        return Intent(gate, Act.KEEP, entrance.answer.why)
    refusal = slack.take(gate)
    return Intent(gate, Act.KEEP, refusal) if refusal else Intent(gate, Act.OPEN, entrance.answer.why)
