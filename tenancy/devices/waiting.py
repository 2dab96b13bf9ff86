"""Defines a waiting seat: the pod of a resident or of a queue that is not placed yet, although its memory is promised.

The extender, the gate and the watchdog use the same definition of a waiting seat. A waiting pod can be placed if enough
memory is free by the ledger. A placed pod can load its data if enough measured memory is free. Agents stop or recycle
other pods only if too little measured memory is free. Units: whole MiB.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from tenancy.devices.allocate import MemoryRequest
from tenancy.ledger import Ledger, Seat

Device = TypeVar("Device", bound=Hashable)  # the caller's key of a device, such as an index or a UUID


@dataclass(frozen=True, kw_only=True)
class WaitingSeat:
    """A pod that waits for its placement, and the seats that are large enough for the pod.

    `created` is the time when the pod was created.
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
    ledger: Ledger,
    tenant: str,
    request: MemoryRequest,
    node_selector: Mapping[str, str] | None = None,
    label: str = "",
) -> tuple[Seat, ...]:
    """Returns the tenant's seats that are large enough for the request, in pools that the pod's nodeSelector allows.

    If the pod's label names a seat, only this seat counts.
    """
    wanted = node_selector or {}
    contrary = {
        pool.name
        for pool in ledger.pools
        if any(wanted.get(key, value) != value for key, value in pool.node_selector.items())
    }
    named = ledger.seat_named(tenant, label)
    seats = ledger.seats_of(tenant) if named is None else (named,)
    fitting = (seat for seat in seats if seat.covers(request.mib, request.count))
    return tuple(seat for seat in fitting if seat.pool not in contrary)


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """The memory of one device.

    `room_mib` is the room for the pod by the ledger. `measured_mib` is the measured free memory, or None without a
    measurement. `going_mib` is the memory that terminating pods hold.
    """

    room_mib: int
    measured_mib: int | None
    floor_mib: int = 0
    going_mib: int = 0

    def lack_mib(self, mib: int) -> int:
        """Returns the MiB that must become free so that a pod can load `mib` and the device stays above its floor."""
        return 0 if self.measured_mib is None else max(mib + self.floor_mib - self.measured_mib, 0)

    def missing_mib(self, mib: int) -> int:
        """Returns the MiB that are still missing after all terminating pods have ended."""
        return max(self.lack_mib(mib) - self.going_mib, 0)

    def less(self, mib: int, used_mib: int) -> "DeviceMemory":
        """Returns the device's memory after a pod with `mib` is placed and uses `used_mib`."""
        measured_mib = None if self.measured_mib is None else self.measured_mib - used_mib
        return replace(self, room_mib=self.room_mib - mib, measured_mib=measured_mib)


def to_free_mib(
    asks: Iterable[MemoryRequest], nodes: Mapping[str, Mapping[Device, DeviceMemory]]
) -> dict[tuple[str, Device], int]:
    """Returns the MiB that must become free on each device so that the pods of all waiting seats can load their data
    together.

    Chooses devices for one seat after the other. The chosen devices have enough memory by the ledger, and the smallest
    shortage. Before the devices for the next seat are chosen, the memory of the last seat is subtracted. Skips a seat
    without enough memory by the ledger, because measured free memory would not help this seat.
    """
    left = {node: {**devices} for node, devices in nodes.items()}
    taken: set[tuple[str, Device]] = set()
    for request in asks:
        ways = [(node, way) for node, devices in left.items() if (way := least_short(request, devices))]
        if not ways:
            continue
        node, way = min(ways, key=lambda each: _sums(_lack(left[each[0]][device], request) for device in each[1]))
        for device in way:
            left[node][device] = left[node][device].less(request.mib, request.mib)
            taken.add((node, device))
    lacks = {(node, device): left[node][device].lack_mib(0) for node, device in taken}
    return {place: mib for place, mib in lacks.items() if mib}


def least_short(request: MemoryRequest, devices: Mapping[Device, DeviceMemory]) -> Sequence[Device]:
    """Returns the devices that a seat gets while other pods use its memory, or () if too few devices fit.

    They have enough memory by the ledger, and the smallest shortage of measured free memory. If two devices have equal
    shortages, the device with less memory free by the ledger comes first.
    """
    fitting = [device for device, memory in devices.items() if memory.room_mib >= request.mib]
    fitting.sort(key=lambda device: (*_lack(devices[device], request), devices[device].room_mib))
    return fitting[: request.count] if len(fitting) >= request.count else ()


def _lack(memory: DeviceMemory, request: MemoryRequest) -> tuple[int, int]:
    """Returns the shortage in MiB after all terminating pods have ended, and then the shortage now."""
    return memory.missing_mib(request.mib), memory.lack_mib(request.mib)


def _sums(lacks: Iterable[tuple[int, int]]) -> tuple[int, int]:
    missing, lacking = zip(*lacks, strict=True)
    return sum(missing), sum(lacking)
