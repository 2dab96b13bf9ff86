"""A GPU, its memory and who is on it, as the exporter measures them and as the other agents read them."""

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device's memory. `gpu` is its index on the node; `used_bytes` includes what the driver reserves."""

    gpu: int
    uuid: str
    total_bytes: int
    used_bytes: int
    free_bytes: int


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
