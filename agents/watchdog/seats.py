"""What waiting seats need of each device: pods within their seats or admitted by their queue, whose memory others
have."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from agents.telemetry.client import NodeTelemetry
from agents.watchdog.pods import GpuPod
from agents.watchdog.types import PassInput
from tenancy.devices.waiting import DeviceMemory, WaitingSeat, to_free_mib
from tenancy.units import MIB


@dataclass(frozen=True)
class SeatDemand:
    """What must be freed of a device, its floor included, for the seats that wait."""

    mib: int
    seats: tuple[str, ...]


def ripe(seats: Iterable[WaitingSeat], now: datetime, waiting_seconds: int) -> tuple[WaitingSeat, ...]:
    """Those for which the gates had their time, in the order in which they are placed."""
    found = (seat for seat in seats if (now - seat.created).total_seconds() >= waiting_seconds)
    return tuple(sorted(found, key=lambda seat: (-seat.priority, seat.created, seat.uid)))


def to_free(snapshot: PassInput, now: datetime) -> Mapping[tuple[str, str], SeatDemand]:
    """By node and uuid. What is not measured is no reason to act."""
    demands: dict[tuple[str, str], SeatDemand] = {}
    seats = ripe(snapshot.seats, now, snapshot.limits.waiting_seconds)
    for pools in dict.fromkeys(seat.pools for seat in seats):
        waiting = [seat for seat in seats if seat.pools == pools]
        nodes = {
            reading.node: _memory(reading, [pod for pod in snapshot.pods if pod.node == reading.node])
            for reading in snapshot.readings
            if reading.pool.name in pools
        }
        for place, mib in to_free_mib([seat.ask for seat in waiting], nodes).items():
            if place not in demands or demands[place].mib < mib:
                demands[place] = SeatDemand(mib, tuple(map(str, waiting)))
    return demands


def _memory(reading: NodeTelemetry, pods: Sequence[GpuPod]) -> Mapping[str, DeviceMemory]:
    """The node's devices by uuid. A pod of which it is not known where it is counts against each."""
    return {
        device.uuid: DeviceMemory(
            room_mib=reading.offered_mib(device) - sum(_held_mib(pod, device.uuid) for pod in pods),
            free_mib=device.free_bytes // MIB,
            floor_mib=reading.pool.floor_mib,
        )
        for device in reading.devices
    }


def _held_mib(pod: GpuPod, uuid: str) -> int:
    """By the ledger: what the pod declared of this device."""
    if pod.ended:
        return 0
    if not pod.uuids:
        return pod.declared_mib
    return -(-pod.declared_mib // len(pod.uuids)) if uuid in pod.uuids else 0
