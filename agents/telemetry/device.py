"""Defines a GPU, its memory and its processes.

The exporter measures them, and the other agents read the measurements.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """A fault that keeps new pods off a device. It is the value of a taint and of a label."""

    UNREADABLE = "unreadable"  # NVML's calls fail for this device
    PAGES_TO_RETIRE = "pages-to-retire"  # bad memory stays in use until the device is reset
    ROW_REMAPPING_FAILED = "row-remapping-failed"  # no spare memory is left for the bad rows


class Uncapped(StrEnum):
    """The reason why a container does not count as capped at its budget. It is the value of a label.

    The first three reasons hold for every container of the node.
    """

    DRIVER = "driver-too-old"  # the driver is older than R615, so its NVML knows no limits
    CGROUP = "cgroup-v1"
    MIG = "mig"
    UNSTAMPED = "not-stamped"  # no limit, and the pod asks for none: it is older than the pool's `enforce: driver`
    UNLIMITED = "no-limit"  # no limit although the pod asks for one: the container toolkit is older than 1.20.1
    INHERITED = "inherited-limit"  # the limit belongs to a group above, which other containers share
    OTHER = "other-limit"
    UNREADABLE = "unreadable"
    GROUPLESS = "no-cgroup"
    BUDGETLESS = "no-budget"  # uses the device without gpumem, while other containers of its pod have some
    UNKNOWN = "unknown-container"  # the container uses the device, and the API has not reported the container yet

    @property
    def of_node(self) -> bool:
        return self in (Uncapped.DRIVER, Uncapped.CGROUP, Uncapped.MIG)


@dataclass(frozen=True, kw_only=True)
class Device:
    """The memory of one device. `gpu` is the device's index on the node. `used_bytes` includes the driver's own memory.

    Only the exporter knows `fault` and `cannot_cap`.
    """

    gpu: int
    uuid: str
    total_bytes: int
    used_bytes: int
    free_bytes: int
    fault: Fault | None = None
    cannot_cap: Uncapped | None = None


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The devices that NVML read, and the indices of the devices that NVML could not read."""

    devices: tuple[Device, ...]
    unreadable: tuple[int, ...] = ()


@dataclass(frozen=True)
class Process:
    """A process with memory on a device. `used_bytes` is None if NVML does not report it."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True)
class Occupancy:
    """A device and its processes. The PIDs are of the exporter's PID namespace."""

    device: Device
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True)
class Scan:
    """The devices that NVML read. For each other device, the reason by index."""

    occupancies: tuple[Occupancy, ...]
    unreadable: Mapping[int, str] = field(default_factory=dict)
