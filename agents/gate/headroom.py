"""Computes a pool's headroom, and chooses the on-demand workloads to stop if the headroom is too small.

Units: whole MiB of GPU memory, whole seconds.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.gate.config import GateConfig
from agents.gate.ownership import UNDER_WAY_SECONDS
from agents.gate.pods import Seating
from agents.gate.probes import FreeMemory
from agents.gate.seats import PoolDevice, pool_devices
from agents.gate.types import GateState
from agents.telemetry.client import NodeTelemetry
from tenancy.devices.waiting import DeviceMemory, WaitingSeat, to_free_mib
from tenancy.units import MIB

# The largest number of waiting seats in a log line.
_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """The devices of a pool, and the waiting seats in the order of their priorities and ages. `problem` is empty if
    every device of the pool was measured.
    """

    problem: str
    floor_mib: int
    devices: tuple[PoolDevice, ...]
    waiting: tuple[WaitingSeat, ...]

    def needed_mib(self, gate: GateConfig) -> int:
        """Returns the memory that must be free on every device before the workload starts."""
        return gate.need_mib + self.floor_mib + gate.margin_mib


@dataclass(frozen=True)
class Pressure:
    """A device on which pods of on-demand workloads must release memory. `for_seats` is True if a seat needs the
    memory, and False if the device is below its floor.
    """

    device: PoolDevice
    for_seats: bool


def used_mib(readings: Iterable[NodeTelemetry], pods: Collection[str]) -> dict[str, int]:
    """Returns the MiB that the pods with these UIDs use, by the device's UUID. The result is empty if the processes on
    the devices are not known.
    """
    held: dict[str, int] = {}
    for reading in readings:
        for use in reading.uses:
            if use.uid in pods:
                held[use.uuid] = held.get(use.uuid, 0) + use.used_bytes // MIB
    return held


def headroom_of(readings: Sequence[NodeTelemetry], states: Sequence[GateState], seating: Seating, now: int) -> Headroom:
    blind = [f"{r.node}: {r.problem or 'no device'}" for r in readings if r.problem or not r.devices]
    found = pool_devices(readings, seating, now)
    devices = [
        replace(
            device,
            closing_mib=sum(state.used_mib.get(device.uuid, 0) for state in states if _is_closing(state, now)),
            loading_mib=sum(state.to_load_mib for state in states if _may_use(state, device, found)),
        )
        for device in found
    ]
    waiting = seating.waiting_in({reading.pool.name for reading in readings})
    return Headroom(
        problem="; ".join(blind) if readings else "no node of the pool is measured",
        floor_mib=readings[0].pool.floor_mib if readings else 0,
        devices=tuple(devices),
        waiting=tuple(sorted(waiting, key=lambda seat: (-seat.priority, seat.created, seat.uid))),
    )


def with_opened(pool: Headroom, gate: GateConfig) -> Headroom:
    """Returns the headroom that is left if the workload starts. The workload's pod may start on any device, so the
    workload's need is subtracted from every device.
    """
    return replace(
        pool, devices=tuple(replace(each, loading_mib=each.loading_mib + gate.need_mib) for each in pool.devices)
    )


def pressures(pool: Headroom, states: Sequence[GateState]) -> Mapping[str, Pressure]:
    """Returns the reason for each workload that must stop, by the workload's name. The reason is the pressure on a
    device. As few workloads as possible stop. The workload that comes last in the stack file stops first. A workload
    also stops if its pods use no memory yet, because they will soon allocate memory.
    """
    found: dict[str, Pressure] = {}
    for_seats = _to_free_mib(pool)
    for device in sorted(pool.devices, key=lambda each: each.repeated):
        seats_mib = for_seats.get(device.uuid, 0)
        floor_mib = pool.floor_mib - device.free_mib - device.closing_mib - device.going_mib
        for state in reversed(states):
            if seats_mib <= 0 and floor_mib <= 0:
                break
            if not state.open or not _may_use(state, device, pool.devices):
                continue
            before = found.get(state.gate.name)
            if before is None or (seats_mib > 0 and not before.for_seats):
                found[state.gate.name] = Pressure(device, seats_mib > 0)
            held_mib = state.used_mib.get(device.uuid, 0)
            seats_mib -= held_mib + state.to_load_mib
            floor_mib -= held_mib
    return found


def why(pool: Headroom, pressure: Pressure) -> str:
    found = f"{pressure.device}: {pressure.device.free_mib} MiB are free, the floor is {pool.floor_mib}"
    if not pressure.for_seats:
        return found
    starting_mib = pressure.device.starting_mib
    wanted = [f"{seat} waits for {seat.request.total_mib} MiB" for seat in pool.waiting[:_NAMED]]
    wanted += [f"seats that have just started may load {starting_mib} MiB"] if starting_mib else []
    return f"{found}; {', '.join(wanted)}"


def refusal(pool: Headroom, gate: GateConfig) -> str | None:
    """Returns the reason why the workload cannot start, or None if it can start. The workload's pod may start on any
    device, so even the fullest device must have enough free memory.
    """
    fullest = min(pool.devices, key=lambda each: each.newcomers_mib)
    if fullest.newcomers_mib >= pool.needed_mib(gate):
        return None
    kept = f" and {fullest.kept_mib} kept for seats" if fullest.kept_mib else ""
    return (
        f"{fullest}: {fullest.free_mib} MiB are free, {fullest.newcomers_mib} of them for newcomers{kept}; "
        f"{pool.needed_mib(gate)} are needed (need, floor and margin)"
    )


def asked_back(pool: Headroom, states: Sequence[GateState], gate: GateConfig) -> frozenset[str]:
    """Returns the workloads to stop so that a workload with demand can start. The result has only workloads without a
    probe for demand. The workload that comes last in the stack file stops first, and as few workloads as possible stop.
    If the workloads without demand together would free too little memory, none of them stops.
    """
    missing = {each: pool.needed_mib(gate) - each.newcomers_mib for each in pool.devices}
    leaving = []
    for state in reversed(states):
        if state.open and isinstance(state.gate.demand, FreeMemory) and max(missing.values()) > 0:
            leaving.append(state.gate.name)
            for device in missing:
                if _may_use(state, device, pool.devices):
                    missing[device] -= state.used_mib.get(device.uuid, 0) + state.to_load_mib
    return frozenset(leaving if max(missing.values()) <= 0 else ())


def _to_free_mib(pool: Headroom) -> Mapping[str, int]:
    nodes: dict[str, dict[str, DeviceMemory]] = {}
    starting = {}
    for device in pool.devices:
        free_mib = device.free_mib + device.closing_mib + device.soon_mib - device.loading_mib - device.starting_mib
        memory = DeviceMemory(room_mib=device.room_mib, measured_mib=free_mib, floor_mib=pool.floor_mib)
        nodes.setdefault(device.node, {})[device.uuid] = memory
        if device.starting_mib:
            starting[device.uuid] = pool.floor_mib - free_mib
    waiting = to_free_mib((seat.request for seat in pool.waiting), nodes)
    return starting | {uuid: mib for (_, uuid), mib in waiting.items()}


def _may_use(state: GateState, device: PoolDevice, devices: Iterable[PoolDevice]) -> bool:
    """Returns True if the workload's pods use the device, or may use it later.

    A pod without a measured use may use any device of its node later. An unbound pod may use any device of the pool.
    """
    if state.used_mib and any(each.uuid in state.used_mib for each in devices):
        return device.uuid in state.used_mib
    return not state.nodes or device.node in state.nodes


def _is_closing(state: GateState, now: int) -> bool:
    """Returns True if the gate has stopped the workload within the last 60 s. Pods of a recently stopped workload may
    not have ended yet.
    """
    since = state.unchanged_for(now)
    return state.ownership.own and not state.open and since is not None and since < UNDER_WAY_SECONDS
