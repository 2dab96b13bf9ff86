"""Computes the memory that waiting seats need on each device.

A waiting seat has a pending pod. The pod belongs to a resident, or Kueue has admitted it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial

from agents.runtime.items import Unjudged, judged
from agents.telemetry.client import NodeTelemetry
from agents.watchdog.pods import GpuPod
from agents.watchdog.snapshot import Snapshot
from agents.watchdog.types import SeatDemand
from tenancy.devices.waiting import DeviceMemory, WaitingSeat, to_free_mib
from tenancy.units import MIB

# The watchdog recycles only for seats that have waited for this time, so that the gate can first stop on-demand
# workloads.
WAITING_SECONDS = 30


def waiting_long_enough(seats: Iterable[WaitingSeat], now: datetime) -> tuple[WaitingSeat, ...]:
    """Returns the seats that have waited for WAITING_SECONDS, in the order in which the scheduler places them."""
    found = (seat for seat in seats if (now - seat.created).total_seconds() >= WAITING_SECONDS)
    return tuple(sorted(found, key=lambda seat: (-seat.priority, seat.created, seat.uid)))


def demands_by_device(snapshot: Snapshot) -> Mapping[tuple[str, str], SeatDemand]:
    """Returns the memory that the waiting seats need, by node and device UUID."""
    demands: dict[tuple[str, str], SeatDemand] = {}
    seats = waiting_long_enough(snapshot.seats, snapshot.now)
    for pools in dict.fromkeys(seat.pools for seat in seats):
        waiting = [seat for seat in seats if seat.pools == pools]
        memory = {
            reading.node: judged(partial(_memory, snapshot, reading))
            for reading in snapshot.readings
            if reading.pool.name in pools
        }
        # On a node that the watchdog cannot judge, it frees no memory for seats.
        nodes = {node: found for node, found in memory.items() if not isinstance(found, Unjudged)}
        asks = [seat.request for seat in waiting]
        fewer = [to_free_mib(asks[:count], nodes) for count in reversed(range(1, len(asks)))]
        for place, mib in to_free_mib(asks, nodes).items():
            if place not in demands or demands[place].mib < mib:
                fewer_mib = tuple(each[place] for each in fewer if place in each)
                demands[place] = SeatDemand(mib, tuple(map(str, waiting)), fewer_mib)
    return demands


def _memory(snapshot: Snapshot, reading: NodeTelemetry) -> Mapping[str, DeviceMemory]:
    """Returns the memory of each device of the node, by UUID. The request of a pod without a known device is subtracted
    on each device.
    """
    pods = [pod for pod in snapshot.pods if pod.node == reading.node]
    going = [use for use in reading.uses if snapshot.frees_soon(use.uid)]
    return {
        device.uuid: DeviceMemory(
            room_mib=reading.offered_mib(device) - sum(_held_mib(pod, device.uuid) for pod in pods),
            measured_mib=device.free_bytes // MIB,
            floor_mib=reading.pool.floor_mib,
            going_mib=sum(use.used_bytes // MIB for use in going if use.uuid == device.uuid),
        )
        for device in reading.devices
    }


def _held_mib(pod: GpuPod, uuid: str) -> int:
    if pod.ended:
        return 0
    if not pod.uuids:
        return pod.declared_mib
    return pod.declared_each_mib if uuid in pod.uuids else 0
