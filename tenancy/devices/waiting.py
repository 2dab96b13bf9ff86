"""Defines a waiting seat: a pod of a resident or a queue that has promised memory and is not placed yet.

The extender, the gate and the watchdog share this definition. The ledger decides if the pod may be placed. Measured
memory decides if the pod could load now. Agents act only on measured memory. Units: whole MiB.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, TypeVar

from tenancy.devices.allocate import MemoryRequest
from tenancy.ledger import Ledger, Seat

Device = TypeVar("Device", bound=Hashable)  # the type of the caller's key, such as an index or a UUID


@dataclass(frozen=True, kw_only=True)
class WaitingSeat:
    """A pod that waits to be placed, and the seats that the pod keeps within. `created` is the time of its creation."""

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
    """Returns the tenant's seats that are as large as the request, in pools that the pod's nodeSelector allows."""
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
    """A device. `room_mib` is free by the ledger, and `free_mib` is measured free or None.

    `going_mib` is held by pods that terminate already.
    """

    room_mib: int
    free_mib: int | None
    floor_mib: int = 0
    going_mib: int = 0

    def lack_mib(self, mib: int) -> int:
        """Returns the MiB to free so that this many MiB can load and the floor stays free."""
        return 0 if self.free_mib is None else max(mib + self.floor_mib - self.free_mib, 0)

    def missing_mib(self, mib: int) -> int:
        """Returns the MiB still missing after all terminating pods have ended."""
        return max(self.lack_mib(mib) - self.going_mib, 0)

    def less(self, mib: int) -> "DeviceMemory":
        """Returns the device with this much more memory held and used."""
        free_mib = None if self.free_mib is None else self.free_mib - mib
        return replace(self, room_mib=self.room_mib - mib, free_mib=free_mib)


@dataclass(frozen=True)
class Lack(Generic[Device]):
    """The obstacle of a request on a node. `room` is True if the request fits by the ledger.

    `mib` has the MiB missing on each device that fits by the ledger but cannot load the pod now. It is empty if enough
    other devices can.
    """

    room: bool
    mib: Mapping[Device, int] = field(default_factory=dict)


def lack_of(request: MemoryRequest, devices: Mapping[Device, DeviceMemory]) -> Lack[Device]:
    """Returns the obstacle of a request on one node."""
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
    """Returns the MiB to free, by node and device of a pool, so that all waiting seats can load at once.

    Each seat in turn takes the devices that fit by the ledger and miss the least memory. For the next seat, these
    devices are taken. A seat that does not fit by the ledger is skipped, because freeing memory would not help.
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
    """Returns the devices that fit by the ledger and miss the least memory; of equals the fullest by the ledger.

    Returns fewer devices if there are no more.
    """
    fitting = [device for device, memory in devices.items() if memory.room_mib >= request.mib]
    return sorted(fitting, key=lambda device: (*_lack(devices[device], request), devices[device].room_mib))[
        : request.count
    ]


def _lack(memory: DeviceMemory, request: MemoryRequest) -> tuple[int, int]:
    """Returns the missing MiB after and before terminating pods have ended."""
    return memory.missing_mib(request.mib), memory.lack_mib(request.mib)


def _sums(lacks: Iterable[tuple[int, int]]) -> tuple[int, int]:
    missing, lacking = zip(*lacks, strict=True)
    return sum(missing), sum(lacking)
