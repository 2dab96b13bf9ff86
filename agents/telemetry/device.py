"""A GPU, its memory and who is on it, as the exporter measures them and as the other agents read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """What is wrong with a device, so that nothing new should start on it; as the value of a taint and of a label."""

    UNREADABLE = "unreadable"  # NVML's calls fail for this one
    PAGES_TO_RETIRE = "pages-to-retire"  # memory that is bad leaves use only when the device is reset
    ROW_REMAPPING_FAILED = "row-remapping-failed"  # no spare memory is left for what is bad


class Uncapped(StrEnum):
    """Why a container's budget is not shown to be held by the driver; as the value of a label.

    The first three are the node's: no container there can be.
    """

    DRIVER = "driver-too-old"  # its NVML knows no limits: older than R615
    CGROUP = "cgroup-v1"
    MIG = "mig"
    UNSTAMPED = "not-stamped"  # no limit, and the pod does not ask for one: it is from before the pool enforced
    UNLIMITED = "no-limit"  # no limit though the pod asks for one: the container toolkit is older than 1.20.1
    INHERITED = "inherited-limit"  # the limit is one of a group above, which others share
    OTHER = "other-limit"
    UNREADABLE = "unreadable"
    GROUPLESS = "no-cgroup"
    BUDGETLESS = "no-budget"  # it uses the device, and has no gpumem of its own in a pod whose other containers have
    UNKNOWN = "unknown-container"  # it uses the device, and the API has not said yet which it is

    @property
    def of_node(self) -> bool:
        return self in (Uncapped.DRIVER, Uncapped.CGROUP, Uncapped.MIG)


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device's memory. `gpu` is its index on the node; `used_bytes` includes what the driver reserves. `fault` is
    known where it was measured, on the node; so is `cannot_cap`, where anybody asked."""

    gpu: int
    uuid: str
    total_bytes: int
    used_bytes: int
    free_bytes: int
    fault: Fault | None = None
    cannot_cap: Uncapped | None = None


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The node's devices: those that NVML read, and the indices of those that it could not."""

    devices: tuple[Device, ...]
    unreadable: tuple[int, ...] = ()


@dataclass(frozen=True)
class Process:
    """A process with memory on a device; `used_bytes` None: NVML does not tell, which is not 0."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True)
class Occupancy:
    """A device and the processes on it, by process id as the reader's PID namespace counts."""

    device: Device
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True)
class Scan:
    """What NVML read of the node's devices, and why not of the others, by index."""

    occupancies: tuple[Occupancy, ...]
    unreadable: Mapping[int, str] = field(default_factory=dict)
