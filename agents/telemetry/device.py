"""Types for devices, their memory and their processes.

The exporter measures the devices, and the other agents read the measurements.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """A fault of a device, which then takes no new pod. The value is used in a taint and in a metric's label."""

    UNREADABLE = "unreadable"  # NVML cannot read the device.
    PAGES_TO_RETIRE = "pages-to-retire"  # Faulty memory stays in use until a reset.
    ROW_REMAPPING_FAILED = "row-remapping-failed"  # No spare memory remains for faulty rows.


class Uncapped(StrEnum):
    """The reason why a container does not count as capped at its budget. The value is used in a metric's label.

    The first three reasons apply to every container of the node.
    """

    DRIVER = "driver-too-old"  # the driver is older than R615, so NVML has no limits
    CGROUP = "cgroup-v1"
    MIG = "mig"
    UNSTAMPED = "not-stamped"  # The pod was created before the pool got `enforce: driver`.
    UNLIMITED = "no-limit"  # The container toolkit is older than 1.20.1 and sets no limit.
    INHERITED = "inherited-limit"  # The limit is that of a parent group with several containers.
    OTHER = "other-limit"
    UNREADABLE = "unreadable"
    GROUPLESS = "no-cgroup"
    BUDGETLESS = "no-budget"  # The container has no gpumem, although other containers of its pod have gpumem.
    UNKNOWN = "unknown-container"  # The API server has not reported the container yet.

    @property
    def of_node(self) -> bool:
        return self in (Uncapped.DRIVER, Uncapped.CGROUP, Uncapped.MIG)


@dataclass(frozen=True, kw_only=True)
class Device:
    """The memory of one device. `gpu` is the device's index on the node. `used_bytes` includes the driver's memory.

    Only the exporter sets `fault` and `cannot_cap`.
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
    """A process with memory on a device. `used_bytes` is None if NVML does not report the use."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True)
class Occupancy:
    """A device and its processes. The PIDs are those in the exporter's PID namespace."""

    device: Device
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True)
class Scan:
    """The devices that NVML read. `unreadable` maps the index of each device that NVML could not read to the reason."""

    occupancies: tuple[Occupancy, ...]
    unreadable: Mapping[int, str] = field(default_factory=dict)
