"""Attribute device memory to containers: the pure half of the exporter. Units: bytes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agents.node.cgroup import Container
from agents.runtime.errors import AgentError
from agents.telemetry.device import Device, Occupancy, Scan, Uncapped


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """A device's memory by container.

    A container with a process whose use NVML does not tell (`unknown_processes`) is left out, so that no part is taken
    for the whole; its memory is unattributed.
    """

    device: Device
    used_bytes: Mapping[Container, int]
    unknown_processes: int = 0

    @property
    def unattributed_bytes(self) -> int:
        """In use and in no container's sum: the driver's own, the host's processes, those of which nothing is known."""
        return max(self.device.used_bytes - sum(self.used_bytes.values()), 0)


@dataclass(frozen=True, kw_only=True)
class CapReading:
    """A container on one of its devices: what it is held to, where there is a number, and why that is not its budget;
    None where it is."""

    container: Container
    uuid: str
    limit_bytes: int | None = None
    uncapped: Uncapped | None = None


@dataclass(frozen=True)
class NodeUse:
    """The node's devices by container, why some cannot be read, by index, and what containers are held to."""

    uses: tuple[DeviceUse, ...]
    unreadable: Mapping[int, str] = field(default_factory=dict)
    caps: tuple[CapReading, ...] = ()


def attribute(scan: Scan, container_of: Callable[[int], Container | None]) -> NodeUse:
    """Each device's memory by container. A process of which `container_of` raises AgentError is one of unknown use."""
    return NodeUse(tuple(_device_use(each, container_of) for each in scan.occupancies), scan.unreadable)


def _device_use(occupancy: Occupancy, container_of: Callable[[int], Container | None]) -> DeviceUse:
    used: dict[Container, int] = {}
    incomplete: set[Container | None] = set()
    unknown = 0
    for process in occupancy.processes:
        try:
            container = container_of(process.pid)
        except AgentError:
            unknown += 1
            continue
        if process.used_bytes is None:
            unknown += 1
            incomplete.add(container)
        elif container is not None:
            used[container] = used.get(container, 0) + process.used_bytes
    whole = {container: used[container] for container in sorted(used) if container not in incomplete}
    return DeviceUse(device=occupancy.device, used_bytes=whole, unknown_processes=unknown)
