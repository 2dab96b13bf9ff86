"""What a pass of the watchdog found: verdicts, targets, and why a pod was spared. Units: whole MiB, seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agents.runtime.clock import Moment
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Device
from agents.telemetry.reading import Trouble
from agents.watchdog.pods import GpuPod
from tenancy.units import MIB

SAMPLES = 2  # in a row, each a reading of its own


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the watchdog may do."""

    minimum_age_seconds: int
    cool_down_seconds: int
    recycles_per_hour: int
    bare_pods: bool
    tenants: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Recycled:
    """What some run recycled: one workload, by the uids of its pods."""

    at: datetime
    workload: str
    pods: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PassState:
    """What one pass leaves to the next: its clocks, the readings and since when each stands still, and in how many
    samples in a row each device, by node and uuid, was under its floor."""

    moment: Moment | None = None
    readings: Mapping[str, NodeTelemetry] = field(default_factory=dict)
    still_since: Mapping[str, float] = field(default_factory=dict)
    pressed: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PassInput:
    """What one pass found. `at` is monotonic, `local_now` this node's time of day; `pods` are those on the nodes of the
    readings; `on_record` are the namespaces that the ledger has without a budget."""

    at: float
    local_now: datetime
    readings: Sequence[NodeTelemetry]
    pods: Sequence[GpuPod]
    recycled: Sequence[Recycled]
    limits: Limits
    on_record: frozenset[str] = frozenset()
    memory: PassState = PassState()


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is recycled as one, and what it has of the device."""

    pods: tuple[GpuPod, ...]
    used_mib: int
    overshoot_mib: int

    @property
    def first(self) -> GpuPod:
        return self.pods[0]

    @property
    def workload(self) -> str:
        return self.first.workload

    def __str__(self) -> str:
        return ", ".join(map(str, self.pods))

    @property
    def name(self) -> str:
        """Unique among the targets of a device."""
        return self.workload if self.first.queued_as else self.first.uid


@dataclass(frozen=True, kw_only=True)
class Spared:
    """An offender that is left alone; `lasting`: for no reason that time takes away."""

    target: Target
    why: str
    lasting: bool = False


@dataclass(frozen=True, kw_only=True)
class Undeclared:
    """A pod that uses the device and declared nothing."""

    pod: GpuPod
    used_mib: int


@dataclass(frozen=True, kw_only=True)
class DeviceVerdict:
    """One device against its floor. `going_mib` is what pods that terminate will free; `missing_mib` what is then still
    missing. `recycle` restores the floor only if `restores`; `capped`: the hourly cap stands in the way."""

    node: str
    device: Device
    floor_mib: int
    samples: int = 0
    going_mib: int = 0
    recycle: tuple[Target, ...] = ()
    restores: bool = True
    capped: bool = False
    spared: tuple[Spared, ...] = ()
    undeclared: tuple[Undeclared, ...] = ()

    @property
    def free_mib(self) -> int:
        return self.device.free_bytes // MIB

    @property
    def pressed(self) -> bool:
        return self.free_mib < self.floor_mib

    @property
    def missing_mib(self) -> int:
        return max(self.floor_mib - self.free_mib - self.going_mib, 0)


@dataclass(frozen=True, kw_only=True)
class Blind:
    """A node on which nothing is done, because what is known of it cannot be believed."""

    node: str
    trouble: Trouble
    problem: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What one pass says of every node, and what the next must know of it."""

    verdicts: tuple[DeviceVerdict, ...]
    blind: tuple[Blind, ...]
    memory: PassState

    @property
    def unsettled(self) -> bool:
        """Whether the next sample may be the one to act on."""
        return any(0 < verdict.samples < SAMPLES for verdict in self.verdicts)
