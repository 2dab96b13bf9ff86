"""Chooses the devices of a node that a pod gets. Units: whole MiB. Source: record 0003."""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tenancy.names import Names
from tenancy.workload import Manifest, pod_request


class Scoring(StrEnum):
    """The preference among devices that have enough free memory."""

    BEST_FIT = "best_fit"  # the least memory left over on the device
    FRAGMENTATION = "fragmentation"  # the least memory that the usual pods can no longer use (fragmentation.py)


@dataclass(frozen=True)
class MemoryRequest:
    """A request for `mib` on each of `count` devices of one node, and for CPU in thousandths."""

    mib: int
    count: int = 1
    cpu_milli: int = 0

    def __post_init__(self) -> None:
        if self.mib < 1 or self.count < 1:
            raise ValueError(f"at least 1 MiB on at least one device (got {self.mib} MiB on {self.count})")

    @staticmethod
    def of(total_mib: int, count: int = 1, cpu_milli: int = 0) -> "MemoryRequest":
        """Divides a pod's request over devices. Raises ValueError if the result is not in whole MiB."""
        if count < 1 or total_mib % count:
            raise ValueError(f"{total_mib} MiB cannot be shared out in equal parts to {count} devices")
        return MemoryRequest(total_mib // count, count, cpu_milli)

    @staticmethod
    def of_pod(spec: Manifest, names: Names) -> "MemoryRequest | None":
        """Returns the request of a pod as the scheduler adds it up; None without GPU memory.

        Raises ValueError like `of`, QuantityError and ShapeError.
        """
        total, count = pod_request(spec, names.gpumem), pod_request(spec, names.gpu_count)
        return MemoryRequest.of(total, count or 1, pod_request(spec, "cpu", per_unit=1000)) if total else None

    @property
    def total_mib(self) -> int:
        return self.mib * self.count


@dataclass(frozen=True)
class DeviceChoice:
    """Devices by index, and the cost of choosing them. The node with the lowest cost is best."""

    indices: tuple[int, ...]
    cost: float


# A Chooser takes the free MiB by device index, and the node's free CPU if known. It returns None if too few devices
# fit. The scheduler checks the CPU itself.
Chooser = Callable[[MemoryRequest, Mapping[int, int], int | None], DeviceChoice | None]


def best_fit(request: MemoryRequest, free: Mapping[int, int], cpu_milli: int | None = None) -> DeviceChoice | None:
    """Returns the fullest devices that fit; of equals, those with the lowest index.

    The cost is the MiB that stay free there.
    """
    del cpu_milli
    fitting = [(mib, index) for index, mib in free.items() if mib >= request.mib]
    if len(fitting) < request.count:
        return None
    chosen = [min(fitting)] if request.count == 1 else heapq.nsmallest(request.count, fitting)
    return DeviceChoice(tuple(sorted(index for _, index in chosen)), sum(mib for mib, _ in chosen) - request.total_mib)
