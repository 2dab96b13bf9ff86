"""A pool's headroom: how much of its free memory on-demand tenants may take, and who must leave when it is too little.

Units: whole MiB of GPU memory, whole seconds.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agents.gate.config import GateConfig
from agents.gate.ownership import UNDER_WAY_SECONDS
from agents.gate.pods import Seating
from agents.gate.probes import FreeMemory
from agents.gate.seats import SeatClaims
from agents.gate.types import GateState
from agents.telemetry.client import NodeTelemetry
from tenancy.units import MIB

# Waiting seats that a line names.
_NAMED = 3


def used_mib(readings: Iterable[NodeTelemetry], pods: Collection[str]) -> dict[str, int]:
    """What the pods with these uids hold, by the device's uuid. Empty as well where it is not known who holds what."""
    held: dict[str, int] = {}
    for reading in readings:
        for use in reading.uses:
            if use.uid in pods:
                held[use.uuid] = held.get(use.uuid, 0) + use.used_bytes // MIB
    return held


@dataclass(frozen=True)
class Pressure:
    """The device for which a gate must close: for seats' pods, which have yet to load, or for the floor."""

    uuid: str
    for_seats: bool


class Headroom:
    """A pool's free memory, less what those who were let in, and the seats, may still take."""

    def __init__(
        self, readings: Sequence[NodeTelemetry], entrances: Sequence[GateState], seating: Seating, now: int
    ) -> None:
        blind = [f"{r.node}: {r.problem or 'no device'}" for r in readings if r.problem or not r.devices]
        self.problem = "; ".join(blind) if readings else "no node of the pool is measured"
        self.floor_mib = readings[0].pool.floor_mib if readings else 0
        self._repeated = {d.uuid for r in readings if r.repeated for d in r.devices}
        self._by_node = {r.node: [d.uuid for d in r.devices] for r in readings}
        self._places = {d.uuid: f"{r.node}, gpu {d.gpu}" for r in readings for d in r.devices}
        self._free_mib = {d.uuid: d.free_bytes // MIB for r in readings for d in r.devices}
        self._seats = SeatClaims(readings, seating, now)
        self._gates_mib = dict.fromkeys(self._free_mib, 0)
        for entrance in entrances:
            for uuid in self._devices_of(entrance):
                self._gates_mib[uuid] += entrance.claimed_mib
        self._room_mib = {
            uuid: free_mib - self._gates_mib[uuid] - self._seats.kept_mib[uuid]
            for uuid, free_mib in self._free_mib.items()
        }
        self._closed_mib = {
            uuid: sum(_going_mib(entrance, uuid, now) for entrance in entrances) for uuid in self._free_mib
        }
        self._leaving = self._crowded_out(entrances)
        self._lent = [each for each in entrances if each.open and isinstance(each.gate.demand, FreeMemory)]
        self._asked_back: set[str] = set()

    def pressure(self, gate: GateConfig) -> Pressure | None:
        """Why the gate must close; None where it need not."""
        return self._leaving.get(gate.name)

    def why(self, pressure: Pressure) -> str:
        found = f"{self._places[pressure.uuid]}: {self._free_mib[pressure.uuid]} MiB are free"
        if not pressure.for_seats:
            return f"{found}, the floor is {self.floor_mib}"
        starting_mib = self._seats.starting_mib[pressure.uuid]
        wanted = [f"{seat} waits for {seat.ask.total_mib} MiB" for seat in self._seats.waiting[:_NAMED]]
        wanted += [f"seats that have just started may load {starting_mib} MiB"] if starting_mib else []
        return f"{found}, the floor is {self.floor_mib}; {', '.join(wanted)}"

    def seat_waits(self, pressure: Pressure) -> bool:
        """Whether a pod waits for what a gate holds there; one that starts has its place."""
        return pressure.for_seats and bool(self._seats.waiting)

    def repeats(self, gate: GateConfig) -> bool:
        """Whether the sample before saw the same reading: of the device for which the gate must close, else of any that
        its pod may be given."""
        pressure = self._leaving.get(gate.name)
        return bool(self._repeated) if pressure is None else pressure.uuid in self._repeated

    def refusal(self, gate: GateConfig) -> str | None:
        """Why there is no room for the gate's pod on the device with the least, which it may be given."""
        uuid = min(self._room_mib, key=lambda uuid: self._room_mib[uuid])
        needed_mib = gate.need_mib + self.floor_mib + gate.margin_mib
        if self._room_mib[uuid] >= needed_mib:
            return None
        kept_mib = self._seats.kept_mib[uuid]
        kept = f" and {kept_mib} kept for seats" if kept_mib else ""
        return (
            f"{self._places[uuid]}: {self._free_mib[uuid]} MiB are free, {self._room_mib[uuid]} of them for newcomers"
            f"{kept}; {needed_mib} are needed (need, floor and margin)"
        )

    def ask_back(self, gate: GateConfig) -> None:
        """Has those leave who are in on free memory alone, where that makes room for a gate that has demand: the last
        first, no more than it takes."""
        needed_mib = gate.need_mib + self.floor_mib + gate.margin_mib
        missing = {uuid: needed_mib - room_mib for uuid, room_mib in self._room_mib.items()}
        leaving = []
        for entrance in reversed(self._lent):
            if max(missing.values()) <= 0:
                break
            for uuid in self._devices_of(entrance):
                missing[uuid] -= entrance.used_mib.get(uuid, 0) + entrance.claimed_mib
            leaving.append(entrance.gate.name)
        if missing and max(missing.values()) <= 0:
            self._asked_back.update(leaving)

    def is_asked_back(self, gate: GateConfig) -> bool:
        return gate.name in self._asked_back

    def take(self, need_mib: int) -> None:
        for uuid in self._room_mib:
            self._room_mib[uuid] -= need_mib

    def _crowded_out(self, entrances: Sequence[GateState]) -> Mapping[str, Pressure]:
        """Which gates must close for which device: the last first, no more than it takes. One that holds nothing yet
        goes as well: it is about to."""
        leaving: dict[str, Pressure] = {}
        for_seats = self._seats.to_free_mib(
            {
                uuid: free_mib
                + self._closed_mib[uuid]
                + self._seats.soon_mib[uuid]
                - self._gates_mib[uuid]
                - self._seats.starting_mib[uuid]
                for uuid, free_mib in self._free_mib.items()
            }
        )
        for uuid in sorted(self._free_mib, key=self._repeated.__contains__):
            seats_mib = for_seats.get(uuid, 0)
            floor_mib = self.floor_mib - self._free_mib[uuid] - self._closed_mib[uuid] - self._seats.going_mib[uuid]
            for entrance in reversed(entrances):
                if seats_mib <= 0 and floor_mib <= 0:
                    break
                if not entrance.open or uuid not in self._devices_of(entrance):
                    continue
                before = leaving.get(entrance.gate.name)
                if before is None or (seats_mib > 0 and not before.for_seats):
                    leaving[entrance.gate.name] = Pressure(uuid, seats_mib > 0)
                seats_mib -= entrance.used_mib.get(uuid, 0) + entrance.claimed_mib
                floor_mib -= entrance.used_mib.get(uuid, 0)
        return leaving

    def _devices_of(self, entrance: GateState) -> Collection[str]:
        """Where its pods are, or may be: of one that holds no memory yet any of its node's, of one without a node any
        of the pool's."""
        used = entrance.used_mib.keys() & self._free_mib.keys()
        if used:
            return used
        nodes = entrance.nodes or self._by_node.keys()
        return [uuid for node in nodes for uuid in self._by_node.get(node, ())]


def _going_mib(entrance: GateState, uuid: str, now: int) -> int:
    """What the pods of a gate that was just closed will give back, before they are told to go; one that never ends is
    no longer counted on."""
    since = entrance.unchanged_for(now)
    going = entrance.standing.own and not entrance.open and since is not None and since < UNDER_WAY_SECONDS
    return entrance.used_mib.get(uuid, 0) if going else 0
