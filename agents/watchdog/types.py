"""What a pass of the watchdog found: verdicts, targets, and why a pod was spared. Units: whole MiB, seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agents.kube.events import Reference
from agents.runtime.clock import Moment
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Device
from agents.telemetry.reading import Trouble
from agents.watchdog.pods import GpuPod
from tenancy.devices.waiting import WaitingSeat
from tenancy.units import MIB

SAMPLES = 2  # in a row, each a reading of its own


@dataclass(frozen=True, kw_only=True)
class HourlyCaps:
    """Recycles within an hour: of one tenant, on one node, and of everybody, which is the brake for what nobody has
    thought of."""

    tenant: int
    node: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the watchdog may do."""

    minimum_age_seconds: int
    cool_down_seconds: int
    grace_seconds: int
    caps: HourlyCaps
    waiting_seconds: int
    bare_pods: bool
    tenants: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Recycled:
    """What some run recycled: one workload, by the uids of its pods, on a node."""

    at: datetime
    workload: str
    pods: tuple[str, ...]
    node: str = ""

    @property
    def tenant(self) -> str:
        return tenant_of(self.workload)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A workload of which the API refused a recycle, and why."""

    at: datetime
    workload: str
    why: str


def tenant_of(workload: str) -> str:
    """The namespace of a workload, which is namespace/kind/name."""
    return workload.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class PassState:
    """What one pass leaves to the next: its clocks, the readings and since when each stands still, and in how many
    samples in a row each device, by node and uuid, was under its floor. `gone` is since when a uid uses a device and is
    no pod that runs there."""

    moment: Moment | None = None
    readings: Mapping[str, NodeTelemetry] = field(default_factory=dict)
    still_since: Mapping[str, float] = field(default_factory=dict)
    pressed: Mapping[tuple[str, str], int] = field(default_factory=dict)
    gone: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PassInput:
    """What one pass found. `at` is monotonic, `local_now` this node's time of day; `pods` are those on the nodes that
    are pressed; `on_record` are the namespaces that the ledger has without a budget."""

    at: float
    local_now: datetime
    readings: Sequence[NodeTelemetry]
    pods: Sequence[GpuPod]
    recycled: Sequence[Recycled]
    limits: Limits
    refused: Sequence[Refused] = ()
    seats: Sequence[WaitingSeat] = ()
    on_record: frozenset[str] = frozenset()
    memory: PassState = PassState()


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is recycled as one, and what it has of the device; its pods are on one node."""

    pods: tuple[GpuPod, ...]
    used_mib: int
    overshoot_mib: int

    @property
    def first(self) -> GpuPod:
        return self.pods[0]

    @property
    def workload(self) -> str:
        return self.first.workload

    @property
    def tenant(self) -> str:
        return self.first.namespace

    def __str__(self) -> str:
        return ", ".join(map(str, self.pods))

    @property
    def name(self) -> str:
        """Unique among the targets of a device."""
        return self.first.recycled_as


@dataclass(frozen=True, kw_only=True)
class Spared:
    """An offender that is left alone; `lasting`: for no reason that time takes away."""

    target: Target
    why: str
    lasting: bool = False


@dataclass(frozen=True, kw_only=True)
class Undeclared:
    """A pod that uses the device and declared nothing."""

    pod: Reference
    used_mib: int


@dataclass(frozen=True, kw_only=True)
class DeviceVerdict:
    """One device against its floor, and against the `seats` that wait: `seats_mib` is what must be freed for these, the
    floor included. `going_mib` is what pods that terminate will free, `ended` those of them that the API no longer has;
    `missing_mib` what is then still missing. `recycle` restores it only if `restores`; `capped`: which hourly cap
    stands in the way."""

    node: str
    device: Device
    floor_mib: int
    seats_mib: int = 0
    seats: tuple[str, ...] = ()
    samples: int = 0
    going_mib: int = 0
    ended: tuple[str, ...] = ()
    recycle: tuple[Target, ...] = ()
    restores: bool = True
    capped: str | None = None
    spared: tuple[Spared, ...] = ()
    undeclared: tuple[Undeclared, ...] = ()

    @property
    def free_mib(self) -> int:
        return self.device.free_bytes // MIB

    @property
    def pressed(self) -> bool:
        return self.short_mib > 0

    @property
    def short_mib(self) -> int:
        """What must be freed: for the floor, and for seats that wait."""
        return max(self.floor_mib - self.free_mib, self.seats_mib, 0)

    @property
    def missing_mib(self) -> int:
        return max(self.short_mib - self.going_mib, 0)


@dataclass(frozen=True, kw_only=True)
class Blind:
    """A node, or where `gpu` is given one of its devices, on which nothing is done, because what is known of it cannot
    be believed."""

    node: str
    trouble: Trouble
    problem: str
    gpu: int | None = None


@dataclass(frozen=True, kw_only=True)
class UncappedPod:
    """A pod of a pool with enforce: driver with a container that is not shown to be held to its budget, and why."""

    pod: Reference
    node: str
    container: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What one pass says of every node, and what the next must know of it. `problem`: why the pass as a whole is
    worthless, a clock or the API; no node's trouble is. `uncapped`: pods that the driver should hold and does not."""

    verdicts: tuple[DeviceVerdict, ...]
    blind: tuple[Blind, ...]
    memory: PassState
    problem: str | None = None
    uncapped: tuple[UncappedPod, ...] = ()

    @property
    def unsettled(self) -> bool:
        """Whether the next sample may be the one to act on."""
        return any(0 < verdict.samples < SAMPLES for verdict in self.verdicts)
