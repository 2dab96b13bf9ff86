"""The types of a pass of the watchdog: its limits, its decision and its journal. Units: whole MiB, seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agents.kube.events import Reference
from agents.runtime.clock import Moment
from agents.runtime.settings import SECONDS, comma_separated, variable, whole
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Device
from agents.telemetry.reading import Trouble
from agents.watchdog.pods import GpuPod
from tenancy.units import MIB

SAMPLES = 2  # recycles need this number of samples in a row, each with a new reading
HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits on recycles.

    `tenants` are the namespaces in which pods may be recycled, at most `evictions_per_hour` times an hour in each.
    `grace_seconds` is the longest grace period of a recycled pod. If recycles cannot bring a device above its floor,
    the watchdog tries to reach `least_free_mib` of free memory.
    """

    tenants: tuple[str, ...] = variable(comma_separated)
    minimum_age_seconds: int = variable(SECONDS)
    cool_down_seconds: int = variable(SECONDS)
    grace_seconds: int = variable(SECONDS)
    evictions_per_hour: int = variable(whole(1, 100_000))
    least_free_mib: int = variable(whole(0, 2**31))


@dataclass(frozen=True, kw_only=True)
class Recycled:
    """A recycle in the journal: a workload, the UIDs of its recycled pods, and their node.

    `overruled` is True if a PodDisruptionBudget refused the eviction of a pod, and the pod was deleted.
    """

    at: datetime
    workload: str
    pods: tuple[str, ...]
    node: str = ""
    overruled: bool = False

    @property
    def tenant(self) -> str:
        """Returns the namespace of the tenant, the first part of namespace/kind/name."""
        return self.workload.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class PassState:
    """The state that one pass leaves for the next pass.

    `samples` has, for each device by node and UUID, the number of samples in a row below its floor. `ended_since` has,
    by UID, the monotonic time when the watchdog first saw that an ended pod still uses a device.
    """

    moment: Moment | None = None
    readings: Mapping[str, NodeTelemetry] = field(default_factory=dict)
    samples: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ended_since: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RecycleTarget:
    """Pods on one node that must be recycled together, and the MiB of the device that they use.

    `age_seconds` is the age of the oldest pod.
    """

    pods: tuple[GpuPod, ...]
    used_mib: int
    overshoot_mib: int
    age_seconds: float = 0

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
        """Returns the name of the target, which is unique among the targets of a device."""
        return self.first.recycled_as

    @property
    def priority(self) -> int:
        return max(pod.priority for pod in self.pods)

    def recycled(self, at: datetime) -> Recycled:
        pods = tuple(pod.uid for pod in self.pods)
        return Recycled(at=at, workload=self.workload, pods=pods, node=self.first.node)


@dataclass(frozen=True)
class SeatDemand:
    """The MiB that must become free on a device so that the waiting `seats` fit and the device is above its floor.

    `fewer_mib` has the MiB for fewer waiting seats. The first value of `fewer_mib` is for all seats except the last
    one. Each further value of `fewer_mib` is for one seat less.
    """

    mib: int
    seats: tuple[str, ...] = ()
    fewer_mib: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Spared:
    """An offender that must not be recycled. `lasting` is True if the reason does not pass with time."""

    target: RecycleTarget
    why: str
    lasting: bool = False


@dataclass(frozen=True, kw_only=True)
class DeviceVerdict:
    """The watchdog's decision on one device.

    `demand` is the memory of waiting seats. `going_mib` is the memory that terminating pods will release. `ended` has
    the UIDs of pods that have ended but still use the device. `too_little` has the offenders that are not recycled,
    because all their recycles together would free too little memory. `limited` is the recycle limit that prevents the
    recycle of offenders. `undeclared` has the pods that use the device without a budget. `assumed_pool` is the device's
    pool if the memory figures of the pool are assumed, so that the watchdog recycles no pod there.
    """

    node: str
    device: Device
    floor_mib: int
    assumed_pool: str | None = None
    demand: SeatDemand = SeatDemand(0)
    samples: int = 0
    going_mib: int = 0
    ended: tuple[str, ...] = ()
    recycle: tuple[RecycleTarget, ...] = ()
    too_little: tuple[RecycleTarget, ...] = ()
    limited: str | None = None
    spared: tuple[Spared, ...] = ()
    undeclared: tuple[Reference, ...] = ()

    @property
    def place(self) -> tuple[str, str]:
        return self.node, self.device.uuid

    @property
    def free_mib(self) -> int:
        return self.device.free_bytes // MIB

    @property
    def pressed(self) -> bool:
        return self.short_mib > 0

    @property
    def short_mib(self) -> int:
        """Returns the MiB that must become free on the device for its floor and for waiting seats."""
        return max(self.floor_mib - self.free_mib, self.demand.mib, 0)

    @property
    def missing_mib(self) -> int:
        """Returns the MiB that the device still lacks after all terminating pods have ended."""
        return max(self.short_mib - self.going_mib, 0)

    def aims_mib(self, least_free_mib: int) -> Sequence[int]:
        """Returns the amounts of MiB that recycles may free, with the largest first.

        The result has an amount for each number of waiting seats, one for the floor alone, and one for
        `least_free_mib`.
        """
        level_mib = min(least_free_mib, self.floor_mib)
        short = (self.short_mib, *self.demand.fewer_mib, self.floor_mib - self.free_mib, level_mib - self.free_mib)
        return sorted({mib - self.going_mib for mib in short if mib > self.going_mib}, reverse=True)


@dataclass(frozen=True, kw_only=True)
class DoubtfulTelemetry:
    """Telemetry of a node, or of the node's device `gpu`, that contradicts itself or has a gap. The watchdog recycles
    no pod on a node or device with doubtful telemetry.
    """

    node: str
    trouble: Trouble
    problem: str
    gpu: int | None = None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision of one pass. If a clock is wrong, the watchdog decides nothing, and `problem` is the reason."""

    state: PassState
    verdicts: tuple[DeviceVerdict, ...] = ()
    blind: tuple[DoubtfulTelemetry, ...] = ()
    problem: str | None = None

    @property
    def unsettled(self) -> bool:
        """Returns True if one more sample could cause a recycle."""
        return any(0 < verdict.samples < SAMPLES for verdict in self.verdicts)
