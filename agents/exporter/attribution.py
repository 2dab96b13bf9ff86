"""Adds up the bytes of device memory that each container uses. All functions are pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from agents.node.cgroup import Container
from agents.runtime.items import Unjudged, judged
from agents.telemetry.device import Device, Occupancy, Scan, Survey, Uncapped


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """The bytes of one device that each container uses.

    `unknown_processes` is the number of processes for which NVML reports no use. `used_bytes` leaves out a container
    with an unknown process, because the known use of this container would be too small.
    """

    device: Device
    used_bytes: Mapping[Container, int]
    unknown_processes: int = 0

    @property
    def unattributed_bytes(self) -> int:
        """Returns the bytes that belong to no container in `used_bytes`: the driver's memory, and the use of host
        processes and unknown processes.
        """
        return max(self.device.used_bytes - sum(self.used_bytes.values()), 0)


@dataclass(frozen=True, kw_only=True)
class CapReading:
    """A container's memory limit on one device.

    `uncapped` is the reason why the container's limit differs from its budget, or None if the limit equals the budget.
    """

    container: Container
    uuid: str
    limit_bytes: int | None = None
    uncapped: Uncapped | None = None


@dataclass(frozen=True)
class NodeUse:
    """The memory use of a node's devices.

    `unreadable` maps the index of each device that NVML cannot read to the reason.
    """

    uses: tuple[DeviceUse, ...] = ()
    unreadable: Mapping[int, str] = field(default_factory=dict)
    caps: tuple[CapReading, ...] = ()

    @property
    def survey(self) -> Survey:
        return Survey(devices=tuple(use.device for use in self.uses), unreadable=tuple(sorted(self.unreadable)))


def attribute(scan: Scan, container_of: Callable[[int], Container | None]) -> NodeUse:
    """Adds up each device's memory by container.

    If `container_of` raises an error for a process, the use of this process counts as unknown.
    """
    return NodeUse(tuple(_device_use(each, container_of) for each in scan.occupancies), scan.unreadable)


def _device_use(occupancy: Occupancy, container_of: Callable[[int], Container | None]) -> DeviceUse:
    used: dict[Container, int] = {}
    incomplete: set[Container | None] = set()
    unknown = 0
    for process in occupancy.processes:
        container = judged(partial(container_of, process.pid))
        if isinstance(container, Unjudged):
            unknown += 1
        elif process.used_bytes is None:
            unknown += 1
            incomplete.add(container)
        elif container is not None:
            used[container] = used.get(container, 0) + process.used_bytes
    whole = {container: used[container] for container in sorted(used) if container not in incomplete}
    return DeviceUse(device=occupancy.device, used_bytes=whole, unknown_processes=unknown)
