"""Defines the input, the decision and the state of a pass of the watchdog. Units: whole MiB, seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agents.kube.events import Reference
from agents.runtime.clock import Moment
from agents.runtime.settings import SECONDS, listed, variable, whole
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Device
from agents.telemetry.reading import Trouble
from agents.watchdog.pods import GpuPod
from tenancy.devices.waiting import WaitingSeat
from tenancy.units import MIB

SAMPLES = 2  # the samples in a row, each a new reading
HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`tenants` are the namespaces where pods may be recycled, each `evictions_per_hour` times an hour.

    `grace_seconds` is the longest grace period of a recycled pod. `least_free_mib` is what recycles restore if they
    cannot restore the floor.
    """

    tenants: tuple[str, ...] = variable(listed)
    minimum_age_seconds: int = variable(SECONDS)
    cool_down_seconds: int = variable(SECONDS)
    grace_seconds: int = variable(SECONDS)
    evictions_per_hour: int = variable(whole(1, 100_000))
    least_free_mib: int = variable(whole(0, 2**31))


@dataclass(frozen=True, kw_only=True)
class Recycled:
    """A recycle in the journal: a workload on a node, with the UIDs of its pods."""

    at: datetime
    workload: str
    pods: tuple[str, ...]
    node: str = ""

    @property
    def tenant(self) -> str:
        """Returns the tenant's namespace. A workload is written as namespace/kind/name."""
        return self.workload.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A refusal by the API to recycle a workload, and the reason."""

    at: datetime
    workload: str
    why: str


@dataclass(frozen=True, kw_only=True)
class PassState:
    """The state that one pass leaves to the next pass. The keys are nodes, pod UIDs, and devices by node and UUID.

    `samples` counts the samples in a row in which a device was under its floor. `ended_since` is when a pod was first
    seen to use a device without running there. `still_since` is when a node's reading last changed.
    """

    moment: Moment | None = None
    readings: Mapping[str, NodeTelemetry] = field(default_factory=dict)
    still_since: Mapping[str, float] = field(default_factory=dict)
    samples: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ended_since: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PassInput:
    """The input of one pass. `at` is monotonic time, `local_now` this node's time of day.

    `pods` are the pods on nodes under pressure. `on_record` are the namespaces of unbudgeted workloads.
    """

    at: float
    local_now: datetime
    readings: Sequence[NodeTelemetry]
    pods: Sequence[GpuPod]
    recycled: Sequence[Recycled]
    limits: Limits
    refused: Sequence[Refused] = ()
    seats: Sequence[WaitingSeat] = ()
    on_record: frozenset[str] = frozenset()
    state: PassState = PassState()


@dataclass(frozen=True, kw_only=True)
class Target:
    """Pods on one node that are recycled together, and the MiB that they use of the device."""

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
        """Returns a name that is unique among the targets of a device."""
        return self.first.recycled_as

    def recycled(self, at: datetime) -> Recycled:
        return Recycled(at=at, workload=self.workload, pods=tuple(pod.uid for pod in self.pods), node=self.first.node)


@dataclass(frozen=True, kw_only=True)
class Spared:
    """An offender that is not recycled. If `lasting` is True, waiting does not change that."""

    target: Target
    why: str
    lasting: bool = False


@dataclass(frozen=True, kw_only=True)
class DeviceVerdict:
    """The decision on one device.

    `seats_mib` must be freed for the waiting `seats`, the floor included; `fewer_seats_mib` for fewer seats.
    Terminating pods will free `going_mib`. `ended` are the UIDs of pods that the API no longer shows. If `restores` is
    True, `recycle` frees everything that is missing. `too_little` are the offenders that stay, because even all
    together they would restore nothing. `limited` is the recycle limit that protects offenders here. `undeclared` pods
    use the device without a budget. `assumed_pool` is the pool if its numbers are assumed: nobody is recycled there.
    """

    node: str
    device: Device
    floor_mib: int
    assumed_pool: str | None = None
    seats_mib: int = 0
    seats: tuple[str, ...] = ()
    fewer_seats_mib: tuple[int, ...] = ()
    samples: int = 0
    going_mib: int = 0
    ended: tuple[str, ...] = ()
    recycle: tuple[Target, ...] = ()
    restores: bool = True
    too_little: tuple[Target, ...] = ()
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
        """Returns the MiB to free for the floor and for waiting seats."""
        return max(self.floor_mib - self.free_mib, self.seats_mib, 0)

    @property
    def missing_mib(self) -> int:
        """Returns the MiB still missing after all terminating pods have ended."""
        return max(self.short_mib - self.going_mib, 0)

    def aims_mib(self, least_free_mib: int) -> Sequence[int]:
        """Returns the MiB that recycles may restore, the most first.

        They are for all waiting seats, for fewer seats, for the floor, and for the least free memory.
        """
        level_mib = min(least_free_mib, self.floor_mib)
        short = (self.short_mib, *self.fewer_seats_mib, self.floor_mib - self.free_mib, level_mib - self.free_mib)
        return sorted({mib - self.going_mib for mib in short if mib > self.going_mib}, reverse=True)


@dataclass(frozen=True, kw_only=True)
class Blind:
    """A node, or its device `gpu`, with telemetry that is not believed. Nothing is recycled there."""

    node: str
    trouble: Trouble
    problem: str
    gpu: int | None = None


@dataclass(frozen=True, kw_only=True)
class UncappedPod:
    """A container that the driver should hold to its budget but does not."""

    pod: Reference
    node: str
    container: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The outcome of one pass. `problem` is why the whole pass failed: a wrong clock or a slow API."""

    state: PassState
    verdicts: tuple[DeviceVerdict, ...] = ()
    blind: tuple[Blind, ...] = ()
    problem: str | None = None
    uncapped: tuple[UncappedPod, ...] = ()

    @property
    def unsettled(self) -> bool:
        """Returns True if the watchdog may act after the next sample."""
        return any(0 < verdict.samples < SAMPLES for verdict in self.verdicts)
