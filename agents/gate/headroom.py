"""A pool's headroom: how much of its free memory on-demand tenants may take, and who must leave when it is too little.

Units: whole MiB of GPU memory, whole seconds.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from agents.gate.config import GateConfig
from agents.gate.ownership import UNDER_WAY_SECONDS
from agents.gate.types import GateState
from agents.telemetry.client import NodeTelemetry
from tenancy.units import MIB


def used_mib(readings: Iterable[NodeTelemetry], pods: Collection[str]) -> dict[str, int]:
    """What the pods with these uids hold, by the device's uuid. Empty as well where it is not known who holds what."""
    held: dict[str, int] = {}
    for reading in readings:
        for use in reading.uses or ():
            if use.uid in pods:
                held[use.uuid] = held.get(use.uuid, 0) + use.used_bytes // MIB
    return held


class Headroom:
    """A pool's free memory, less what those who were let in may still take."""

    def __init__(self, readings: Sequence[NodeTelemetry], entrances: Sequence[GateState], now: int) -> None:
        blind = [f"{r.node}: {r.problem or 'no device'}" for r in readings if r.problem or not r.devices]
        self.problem = "; ".join(blind) if readings else "no node of the pool is measured"
        self._repeated = {d.uuid for r in readings if r.repeated for d in r.devices}
        self.floor_mib = readings[0].pool.floor_mib if readings else 0
        self._places = {d.uuid: f"{r.node}, gpu {d.gpu}" for r in readings for d in r.devices}
        self._free_mib = {d.uuid: d.free_bytes // MIB for r in readings for d in r.devices}
        self._room_mib = dict(self._free_mib)
        for entrance in entrances:
            # Where a pod will go that holds no memory yet is not the gate's to know: it may be any of the devices.
            for uuid in self._devices_of(entrance) or self._room_mib:
                self._room_mib[uuid] -= entrance.claimed_mib
        self._leaving = self._crowded_out(entrances, now)

    def pressure(self, gate: GateConfig) -> str | None:
        """Why the gate must close; None where it need not."""
        uuid = self._leaving.get(gate.name)
        if uuid is None:
            return None
        return f"{self._places[uuid]}: {self._free_mib[uuid]} MiB are free, the floor is {self.floor_mib}"

    def repeats(self, gate: GateConfig) -> bool:
        """Whether the sample before saw the same reading: of the device for which the gate must close, else of any that
        its pod may be given."""
        uuid = self._leaving.get(gate.name)
        return bool(self._repeated) if uuid is None else uuid in self._repeated

    def refusal(self, gate: GateConfig) -> str | None:
        """Why there is no room for the gate's pod on the device with the least, which it may be given."""
        uuid = min(self._room_mib, key=lambda uuid: self._room_mib[uuid])
        needed_mib = gate.need_mib + self.floor_mib + gate.margin_mib
        if self._room_mib[uuid] >= needed_mib:
            return None
        return (
            f"{self._places[uuid]}: {self._free_mib[uuid]} MiB are free, {self._room_mib[uuid]} of them for newcomers; "
            f"{needed_mib} are needed (need, floor and margin)"
        )

    def take(self, need_mib: int) -> None:
        for uuid in self._room_mib:
            self._room_mib[uuid] -= need_mib

    def _crowded_out(self, entrances: Sequence[GateState], now: int) -> Mapping[str, str]:
        """Which gates must close for which device to be above its floor again: the last first, no more than it takes.
        One that holds nothing yet goes as well: it is about to."""
        leaving: dict[str, str] = {}
        for uuid in sorted(self._free_mib, key=self._repeated.__contains__):
            going_mib = sum(_going_mib(entrance, uuid, now) for entrance in entrances)
            missing_mib = self.floor_mib - self._free_mib[uuid] - going_mib
            for entrance in reversed(entrances):
                if missing_mib <= 0:
                    break
                if entrance.open and (uuid in entrance.used_mib or not entrance.used_mib):
                    leaving.setdefault(entrance.gate.name, uuid)
                    missing_mib -= entrance.used_mib.get(uuid, 0)
        return leaving

    def _devices_of(self, entrance: GateState) -> Iterable[str]:
        return entrance.used_mib.keys() & self._free_mib.keys()


def _going_mib(entrance: GateState, uuid: str, now: int) -> int:
    """What the pods of a gate that was just closed will give back; one that never ends is no longer counted on."""
    since = entrance.unchanged_for(now)
    going = entrance.standing.own and not entrance.open and since is not None and since < UNDER_WAY_SECONDS
    return entrance.used_mib.get(uuid, 0) if going else 0
