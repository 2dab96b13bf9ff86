"""Computes the memory that waiting seats need on each device.

A waiting seat has a pending pod of a resident, or a pending pod that a queue has admitted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from agents.telemetry.client import NodeTelemetry
from agents.watchdog.pods import GpuPod
from agents.watchdog.types import PassInput
from tenancy.devices.waiting import DeviceMemory, WaitingSeat, to_free_mib
from tenancy.units import MIB

# The watchdog recycles only for seats that have waited for this time, so that the gate can first stop on-demand
# workloads.
WAITING_SECONDS = 30


@dataclass(frozen=True)
class SeatDemand:
    """The MiB to free on a device for the waiting seats and for its floor.

    `fewer_mib` has the MiB for fewer seats: for all seats without the last one, and so on until only the first seat is
    left.
    """

    mib: int
    seats: tuple[str, ...]
    fewer_mib: tuple[int, ...] = ()


def waiting_long_enough(seats: Iterable[WaitingSeat], now: datetime) -> tuple[WaitingSeat, ...]:
    """Returns the seats that have waited for WAITING_SECONDS, in the order in which the scheduler places them."""
    found = (seat for seat in seats if (now - seat.created).total_seconds() >= WAITING_SECONDS)
    return tuple(sorted(found, key=lambda seat: (-seat.priority, seat.created, seat.uid)))


def demands_by_device(
    snapshot: PassInput, now: datetime, frees_soon: Callable[[str], bool]
) -> Mapping[tuple[str, str], SeatDemand]:
    """Returns the demand of the waiting seats by node and device UUID.

    `frees_soon` takes a pod's UID, and returns True if the pod will free its memory soon.
    """
    demands: dict[tuple[str, str], SeatDemand] = {}
    seats = waiting_long_enough(snapshot.seats, now)
    for pools in dict.fromkeys(seat.pools for seat in seats):
        waiting = [seat for seat in seats if seat.pools == pools]
        nodes = {
            reading.node: _memory(reading, [pod for pod in snapshot.pods if pod.node == reading.node], frees_soon)
            for reading in snapshot.readings
            if reading.pool.name in pools
        }
        asks = [seat.request for seat in waiting]
        fewer = [to_free_mib(asks[:count], nodes) for count in reversed(range(1, len(asks)))]
        for place, mib in to_free_mib(asks, nodes).items():
            if place not in demands or demands[place].mib < mib:
                fewer_mib = tuple(each[place] for each in fewer if place in each)
                demands[place] = SeatDemand(mib, tuple(map(str, waiting)), fewer_mib)
    return demands


def _memory(
    reading: NodeTelemetry, pods: Sequence[GpuPod], frees_soon: Callable[[str], bool]
) -> Mapping[str, DeviceMemory]:
    """Returns the memory of the node's devices by UUID. A pod without a known device counts on each device."""
    return {
        device.uuid: DeviceMemory(
            room_mib=reading.offered_mib(device) - sum(_held_mib(pod, device.uuid) for pod in pods),
            free_mib=device.free_bytes // MIB,
            floor_mib=reading.pool.floor_mib,
            going_mib=sum(u.used_bytes // MIB for u in reading.uses if u.uuid == device.uuid and frees_soon(u.uid)),
        )
        for device in reading.devices
    }


def _held_mib(pod: GpuPod, uuid: str) -> int:
    """Returns the MiB that the pod holds on this device."""
    if pod.ended:
        return 0
    if not pod.uuids:
        return pod.declared_mib
    return pod.declared_each_mib if uuid in pod.uuids else 0
