"""A waiting seat: a pod that is not placed yet, of a resident or admitted by its queue, to whom the ledger promised
memory. Has it room, and how much must be freed for it to load?

The one definition for those who place it, close gates for it and recycle for it. Seats are by ledger: a pod within its
seat is placed wherever the ledger has room; a queue's pod waits until what it asks for is free. What is measured says
only whether it could load there now. What is not measured is no reason to act. Units: whole MiB of GPU memory.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, TypeVar

from tenancy.devices.allocate import Ask
from tenancy.ledger import Ledger, Seat

Device = TypeVar("Device", bound=Hashable)  # the caller's key: an index, a UUID


@dataclass(frozen=True, kw_only=True)
class WaitingSeat:
    """A pod that waits to be placed, and the seats that it keeps within; `created` is when it was made."""

    uid: str
    namespace: str
    name: str
    ask: Ask
    seats: tuple[Seat, ...]
    priority: int
    created: datetime

    @property
    def pools(self) -> frozenset[str]:
        return frozenset(seat.pool for seat in self.seats)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def seats_for(
    ledger: Ledger, tenant: str, ask: Ask, node_selector: Mapping[str, str] | None = None
) -> tuple[Seat, ...]:
    """The tenant's seats that a pod with that ask keeps within, in the order of the ledger; none for who has no seat,
    or asks for more than each. Not among them are those in pools that the pod's nodeSelector rules out."""
    wanted = node_selector or {}
    contrary = {
        pool.name
        for pool in ledger.pools
        if any(wanted.get(key, value) != value for key, value in pool.node_selector.items())
    }
    fitting = (seat for seat in ledger.seats_of(tenant) if ask.total_mib <= seat.gpumem_mib)
    return tuple(seat for seat in fitting if seat.pool not in contrary)


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """`room_mib` is what the ledger has left of the device: what it offers, less what pods bound to it asked for.
    `free_mib` is what is measured to be free, None where that is not known."""

    room_mib: int
    free_mib: int | None
    floor_mib: int = 0

    def lack_mib(self, mib: int) -> int:
        """What must be freed for so much to load and leave the floor free; 0 where nothing must."""
        return 0 if self.free_mib is None else max(mib + self.floor_mib - self.free_mib, 0)

    def less(self, mib: int) -> "DeviceMemory":
        """With so much of it taken, and used."""
        free_mib = None if self.free_mib is None else self.free_mib - mib
        return replace(self, room_mib=self.room_mib - mib, free_mib=free_mib)


@dataclass(frozen=True)
class Lack(Generic[Device]):
    """What keeps an ask from a node's devices. `room`: whether the ledger has room. `mib`: the devices with room that
    could not load it now, and how much each lacks; empty where enough others could."""

    room: bool
    mib: Mapping[Device, int] = field(default_factory=dict)

    @property
    def pressing(self) -> bool:
        """The ledger has room, and the memory is used by others: they must give it back."""
        return bool(self.mib)


def lack_of(ask: Ask, devices: Mapping[Device, DeviceMemory]) -> Lack[Device]:
    """What an ask lacks of one node. To know of a pool, see that no node has room without a lack."""
    lacks = {device: memory.lack_mib(ask.mib) for device, memory in devices.items() if memory.room_mib >= ask.mib}
    if len(lacks) < ask.count:
        return Lack(room=False)
    short = {device: mib for device, mib in lacks.items() if mib}
    return Lack(room=True, mib=short if len(lacks) - len(short) < ask.count else {})


def to_free_mib(
    asks: Iterable[Ask], nodes: Mapping[str, Mapping[Device, DeviceMemory]]
) -> dict[tuple[str, Device], int]:
    """How much must be freed, by node and device of a pool, for waiting seats to load all at once.

    In the order given each gets the devices with room that lack the least together, and the next finds them taken. One
    without room by the ledger counts for nothing: freeing memory would not help it.
    """
    left = {node: {**devices} for node, devices in nodes.items()}
    taken: set[tuple[str, Device]] = set()
    for ask in asks:
        ways = [(node, way) for node, devices in left.items() if len(way := _least(ask, devices)) == ask.count]
        if not ways:
            continue
        node, way = min(ways, key=lambda each: sum(left[each[0]][device].lack_mib(ask.mib) for device in each[1]))
        for device in way:
            left[node][device] = left[node][device].less(ask.mib)
            taken.add((node, device))
    lacks = {(node, device): left[node][device].lack_mib(0) for node, device in taken}
    return {place: mib for place, mib in lacks.items() if mib}


def _least(ask: Ask, devices: Mapping[Device, DeviceMemory]) -> Sequence[Device]:
    """The devices with room that lack the least, of equals the fullest by the ledger; fewer than asked where there are
    not enough."""
    fitting = [device for device, memory in devices.items() if memory.room_mib >= ask.mib]
    return sorted(fitting, key=lambda device: (devices[device].lack_mib(ask.mib), devices[device].room_mib))[
        : ask.count
    ]
