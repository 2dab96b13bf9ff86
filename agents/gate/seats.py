"""What a pool's seats may still take of each device, and what is about to be given back there.

A seat is always there to be taken: what an absent or a starting one may claim within its budget is not handed out, and
for one that waits or starts gates close. Seats in use are another matter: what these leave is the slack that is lent.

Units: whole MiB of GPU memory, whole seconds.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from agents.gate.pods import BoundPod, Seating
from agents.telemetry.client import NodeTelemetry
from tenancy.devices.waiting import DeviceMemory, to_free_mib
from tenancy.ledger import Seat
from tenancy.units import MIB

# A pod that was told to go counts as going for its grace, at most so long, and until that is measured: after that its
# process hangs.
LONGEST_GRACE_SECONDS = 60
MEASURED_SECONDS = 15
# For a seat that waits, only so long: its budget is somebody's to give back at once.
SOON_SECONDS = 15


class SeatClaims:
    """By device's uuid: `starting_mib` is what those who have just started may still load; `kept_mib` that, and what
    absent seats and those that hold nothing may claim; `going_mib` what those who are going give back, `soon_mib` what
    of it comes soon enough for a seat that waits: who was just told to go, or was let in."""

    def __init__(self, readings: Sequence[NodeTelemetry], seating: Seating, now: int) -> None:
        self._readings = readings
        self._now = now
        self._starting_seconds = seating.starting_seconds
        self._pods = {pod.uid: pod for pod in seating.pods if pod.node in {reading.node for reading in readings}}
        self._devices = {reading.node: [device.uuid for device in reading.devices] for reading in readings}
        self._unknown = {uuid for reading in readings for uuid in reading.unknown_uses}
        self._used: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self.going_mib: defaultdict[str, int] = defaultdict(int)
        self.soon_mib: defaultdict[str, int] = defaultdict(int)
        for use in (use for reading in readings for use in reading.uses):
            self._used[use.uid][use.uuid] = use.used_bytes // MIB
            if self._is_going(use.uid, MEASURED_SECONDS, LONGEST_GRACE_SECONDS):
                self.going_mib[use.uuid] += use.used_bytes // MIB
            if self._is_going(use.uid, SOON_SECONDS, 0):
                self.soon_mib[use.uuid] += use.used_bytes // MIB
        self.starting_mib: defaultdict[str, int] = defaultdict(int)
        self.kept_mib: defaultdict[str, int] = defaultdict(int)
        self._held_mib: defaultdict[str, int] = defaultdict(int)
        staying = [pod for pod in self._pods.values() if pod.going_since is None and pod.declared_mib]
        for pod in staying:
            self._count(pod)
        pools = {reading.pool.name for reading in readings}
        self._room_mib = self._ledger_room_mib()
        waiting = [seat for seat in seating.waiting if not pools.isdisjoint(seat.pools)]
        absent_mib = _absent_mib([seat for seat in seating.seats if seat.pool in pools], staying)
        # A queue's pod that waits has no seat of its own: what it asks for comes on top.
        absent_mib += sum(seat.ask.total_mib for seat in waiting if set(seat.seats).isdisjoint(seating.seats))
        for uuid, room_mib in self._room_mib.items():
            self.kept_mib[uuid] += max(0, min(absent_mib, room_mib))
        self.waiting = sorted(waiting, key=lambda seat: (-seat.priority, seat.created, seat.uid))

    def to_free_mib(self, free_mib: Mapping[str, int]) -> Mapping[str, int]:
        """How much must be freed on which devices for the waiting and the starting seats; `free_mib` is what is free
        for them by device."""
        if not self._readings:
            return {}
        floor_mib = self._readings[0].pool.floor_mib
        devices = {
            node: {
                uuid: DeviceMemory(room_mib=self._room_mib[uuid], free_mib=free_mib[uuid], floor_mib=floor_mib)
                for uuid in uuids
            }
            for node, uuids in self._devices.items()
        }
        starting = {uuid: floor_mib - free_mib[uuid] for uuid, mib in self.starting_mib.items() if mib}
        waiting = to_free_mib((seat.ask for seat in self.waiting), devices)
        return starting | {uuid: mib for (_, uuid), mib in waiting.items()}

    def _is_going(self, uid: str, seconds: int, grace_seconds: int) -> bool:
        """Whether it was told to go not longer ago, with its grace; for who has no budget its whole grace counts."""
        pod = self._pods.get(uid)
        if pod is None or pod.going_since is None:
            return False
        grace = min(pod.grace_seconds, grace_seconds if pod.declared_mib else LONGEST_GRACE_SECONDS)
        return self._now - pod.going_since < grace + seconds

    def _count(self, pod: BoundPod) -> None:
        known = self._devices[pod.node]
        used = self._used.get(pod.uid, {})
        places = [uuid for uuid in pod.uuids if uuid in known] or [uuid for uuid in used if uuid in known]
        share_mib = -(-pod.declared_mib // max(len(places), 1))
        # Where it is not known which device it has, it may be any of its node's.
        for uuid in places or known:
            if places or len(known) == 1:
                self._held_mib[uuid] += share_mib
            rest_mib = max(0, share_mib - used.get(uuid, 0))
            starts = pod.running_since is None or self._now - pod.running_since < self._starting_seconds
            if starts and uuid not in self._unknown:
                self.starting_mib[uuid] += rest_mib
            if starts or not (used or uuid in self._unknown):
                self.kept_mib[uuid] += rest_mib

    def _ledger_room_mib(self) -> dict[str, int]:
        return {
            device.uuid: reading.offered_mib(device) - self._held_mib[device.uuid]
            for reading in self._readings
            for device in reading.devices
        }


def _absent_mib(seats: Sequence[Seat], staying: Sequence[BoundPod]) -> int:
    """What tenants may claim of these seats beyond what their pods declare."""
    left: defaultdict[str, int] = defaultdict(int)
    for seat in seats:
        left[seat.tenant] += seat.total_mib
    for pod in staying:
        left[pod.namespace] -= pod.declared_mib
    return sum(max(0, mib) for mib in left.values())
