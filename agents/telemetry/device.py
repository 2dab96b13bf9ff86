"""The types for devices, their memory and their processes.

The exporter measures the devices, and the other agents read these measurements.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """A fault of a device. A device with a fault takes no new pod. A taint and the label of a metric contain this
    value.
    """

    UNREADABLE = "unreadable"  # NVML cannot read the device.
    PAGES_TO_RETIRE = "pages-to-retire"  # Faulty memory of the device stays in use until a reset.
    ROW_REMAPPING_FAILED = "row-remapping-failed"  # The device has no spare rows of memory left to replace faulty rows.


class Uncapped(StrEnum):
    """The reason why the driver does not cap a container at its budget, or why the exporter cannot read the cap. The
    label of a metric contains this value.

    The first three reasons apply to every container of the node.
    """

    DRIVER = "driver-too-old"  # the driver is older than R615, so NVML does not know limits
    CGROUP = "cgroup-v1"
    MIG = "mig"
    UNSTAMPED = "not-stamped"  # The pod was created before its pool got `enforce: driver`.
    UNLIMITED = "no-limit"  # The container toolkit is older than 1.20.1 and sets no limit.
    INHERITED = "inherited-limit"  # The limit belongs to a parent control group with several containers.
    OTHER = "other-limit"
    UNREADABLE = "unreadable"
    GROUPLESS = "no-cgroup"
    BUDGETLESS = "no-budget"  # The container requests no gpumem, but another container of its pod does.
    UNKNOWN = "unknown-container"  # The API server has not reported the container yet.

    @property
    def of_node(self) -> bool:
        return self in (Uncapped.DRIVER, Uncapped.CGROUP, Uncapped.MIG)


@dataclass(frozen=True, kw_only=True)
class Device:
    """The memory of one device. `gpu` is the index of the device on its node. `used_bytes` includes the memory that the
    driver uses.

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
    """The devices that NVML could read, and the indices of the devices that NVML could not read."""

    devices: tuple[Device, ...]
    unreadable: tuple[int, ...] = ()


@dataclass(frozen=True)
class Process:
    """A process that uses memory of a device. `used_bytes` is None if NVML does not report the process's use."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True)
class Occupancy:
    """A device, and the processes that use its memory. The PIDs are valid in the PID namespace of the exporter."""

    device: Device
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True)
class Scan:
    """The devices of a node that NVML could read. `unreadable` maps the index of each device that NVML could not read
    to the reason.
    """

    occupancies: tuple[Occupancy, ...]
    unreadable: Mapping[int, str] = field(default_factory=dict)
