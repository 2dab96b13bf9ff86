"""Defines a waiting seat: a pod of a resident or a queue that is not placed yet, although its memory is promised.

The extender, the gate and the watchdog use this definition. The ledger decides whether a waiting pod may be placed. The
measured free memory decides whether a waiting pod could load its data now. Agents act only on the measured free memory.
Units: whole MiB.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, TypeVar

from tenancy.devices.allocate import MemoryRequest
from tenancy.ledger import Ledger, Seat

Device = TypeVar("Device", bound=Hashable)  # the caller's key of a device, such as an index or a UUID


@dataclass(frozen=True, kw_only=True)
class WaitingSeat:
    """A pod that waits to be placed, and the seats that are large enough for the pod.

    `created` is the time at which the pod was created.
    """

    uid: str
    namespace: str
    name: str
    request: MemoryRequest
    seats: tuple[Seat, ...]
    priority: int
    created: datetime

    @property
    def pools(self) -> frozenset[str]:
        return frozenset(seat.pool for seat in self.seats)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def seats_for(
    ledger: Ledger, tenant: str, request: MemoryRequest, node_selector: Mapping[str, str] | None = None
) -> tuple[Seat, ...]:
    """Returns the tenant's seats that cover the request and are in a pool that the pod's nodeSelector allows."""
    wanted = node_selector or {}
    contrary = {
        pool.name
        for pool in ledger.pools
        if any(wanted.get(key, value) != value for key, value in pool.node_selector.items())
    }
    fitting = (seat for seat in ledger.seats_of(tenant) if seat.covers(request.mib, request.count))
    return tuple(seat for seat in fitting if seat.pool not in contrary)


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """The memory of one device.

    `room_mib` is the memory free by the ledger. `free_mib` is the measured free memory, or None without a measurement.
    `going_mib` is held by pods that are already terminating.
    """

    room_mib: int
    free_mib: int | None
    floor_mib: int = 0
    going_mib: int = 0

    def lack_mib(self, mib: int) -> int:
        """Returns the MiB to free so that a pod can load `mib` and the floor stays free."""
        return 0 if self.free_mib is None else max(mib + self.floor_mib - self.free_mib, 0)

    def missing_mib(self, mib: int) -> int:
        """Returns the MiB still missing after all terminating pods have ended."""
        return max(self.lack_mib(mib) - self.going_mib, 0)

    def less(self, mib: int) -> "DeviceMemory":
        """Returns the device's memory after a pod with `mib` has been placed and has loaded its data."""
        free_mib = None if self.free_mib is None else self.free_mib - mib
        return replace(self, room_mib=self.room_mib - mib, free_mib=free_mib)


@dataclass(frozen=True)
class Lack(Generic[Device]):
    """The memory that a request lacks on a node. `room` is True if the request fits the node by the ledger.

    `mib` has the missing MiB of each device where the request fits by the ledger but the pod cannot load its data now.
    `mib` is empty if the pod can load its data on enough other devices now.
    """

    room: bool
    mib: Mapping[Device, int] = field(default_factory=dict)


def lack_of(request: MemoryRequest, devices: Mapping[Device, DeviceMemory]) -> Lack[Device]:
    """Returns the memory that a request lacks on one node."""
    lacks = {
        device: memory.lack_mib(request.mib) for device, memory in devices.items() if memory.room_mib >= request.mib
    }
    if len(lacks) < request.count:
        return Lack(room=False)
    short = {device: mib for device, mib in lacks.items() if mib}
    return Lack(room=True, mib=short if len(lacks) - len(short) < request.count else {})


def to_free_mib(
    asks: Iterable[MemoryRequest], nodes: Mapping[str, Mapping[Device, DeviceMemory]]
) -> dict[tuple[str, Device], int]:
    """Returns the MiB to free on each device, so that the pods of all waiting seats can load their data together.

    For each seat in turn, chooses the devices that fit by the ledger and lack the least memory. The memory of one seat
    counts as used before the next seat is judged. A seat that does not fit by the ledger is skipped, because free
    memory would not help this seat.
    """
    left = {node: {**devices} for node, devices in nodes.items()}
    taken: set[tuple[str, Device]] = set()
    for request in asks:
        ways = [(node, way) for node, devices in left.items() if len(way := _least(request, devices)) == request.count]
        if not ways:
            continue
        node, way = min(ways, key=lambda each: _sums(_lack(left[each[0]][device], request) for device in each[1]))
        for device in way:
            left[node][device] = left[node][device].less(request.mib)
            taken.add((node, device))
    lacks = {(node, device): left[node][device].lack_mib(0) for node, device in taken}
    return {place: mib for place, mib in lacks.items() if mib}


def _least(request: MemoryRequest, devices: Mapping[Device, DeviceMemory]) -> Sequence[Device]:
    """Returns the devices that fit by the ledger and lack the least memory.

    Of equal devices, the fullest by the ledger comes first. The result has fewer devices than requested if too few
    devices fit.
    """
    fitting = [device for device, memory in devices.items() if memory.room_mib >= request.mib]
    return sorted(fitting, key=lambda device: (*_lack(devices[device], request), devices[device].room_mib))[
        : request.count
    ]


def _lack(memory: DeviceMemory, request: MemoryRequest) -> tuple[int, int]:
    """Returns the missing MiB after all terminating pods have ended, and the missing MiB now."""
    return memory.missing_mib(request.mib), memory.lack_mib(request.mib)


def _sums(lacks: Iterable[tuple[int, int]]) -> tuple[int, int]:
    missing, lacking = zip(*lacks, strict=True)
    return sum(missing), sum(lacking)
