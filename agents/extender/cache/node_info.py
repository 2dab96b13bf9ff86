"""NodeInfo: one node's devices, and what each pod holds of them. Units: whole MiB of GPU memory."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar

from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.pod_info import Bystander, Nomination, PodInfo, Standing
from agents.extender.preemption import Room
from agents.telemetry.reading import PodUse
from tenancy.devices.allocate import Ask, Chooser, DeviceChoice, best_fit
from tenancy.devices.recycle import overshoot_mib
from tenancy.devices.waiting import DeviceMemory, lack_of
from tenancy.names import REFUSED_AS_MEASURED
from tenancy.units import MIB

# More than what any choice of devices that lack nothing costs.
_SHORT_COST = 1 << 40


@dataclass(frozen=True, kw_only=True)
class DeviceShare:
    """Devices kept for a pod not known to be bound; `until` is monotonic seconds, None where no time ends it."""

    placed: ClassVar[bool] = True
    terminating: ClassVar[bool] = False
    uid: str
    ask: Ask
    indices: tuple[int, ...]
    uuids: tuple[str, ...]
    until: float | None = None
    priority: int = 0


@dataclass(frozen=True)
class MeasuredMemory:
    """Free MiB by device's index as measured, until when (monotonic seconds) that counts, and who uses the devices,
    but for those, by UUID, of which that is not known."""

    free: Mapping[int, int]
    until: float
    uses: tuple[PodUse, ...] = ()
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True)
class UndeclaredUse:
    """A pod that uses `mib` of a device beyond what it declared; the exporter may not know its name."""

    namespace: str
    name: str
    mib: int

    def __str__(self) -> str:
        who = f"{self.namespace}/{self.name}" if self.name else "a pod whose name is not known yet"
        return f"{who} by {self.mib} MiB"


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """A device that the ledger has room on, and that memory in use keeps a seat from: `mib` must be freed for the seat
    to load and leave the floor free. `holders` are beyond their budgets there, the furthest first."""

    node: str
    pool: str
    index: int
    mib: int
    floor_mib: int
    holders: tuple[UndeclaredUse, ...] = ()


class NodeInfo:
    """What is free on a node's devices. Whoever changes a part calls `recount` afterwards.

    A device has what it offers less what pods and holds have of it, and by a reading no more than what was measured
    free less the floor. `changed` is told the node's name at each change.
    """

    def __init__(self, node: str, changed: Callable[[str], object] = lambda node: None) -> None:
        self.node = node
        self.inventory: NodeDevices | None = None
        self.pods: dict[str, PodInfo] = {}
        self.bystanders: dict[str, Bystander] = {}
        self.taken: dict[str, DeviceShare] = {}
        self.reserved: dict[str, DeviceShare] = {}
        self.nominated: dict[str, Nomination] = {}
        self.kept: dict[str, Nomination] = {}
        self.reading: MeasuredMemory | None = None
        self._changed = changed
        self.recount()

    @property
    def idle(self) -> bool:
        """Nothing is known of the node and nothing is held on it."""
        known = self.pods or self.bystanders or self.taken or self.reserved or self.nominated or self.kept
        return self.inventory is None and not known

    def as_now(self) -> "NodeInfo":
        """A copy that changes no more, to be read without the lock: `recount` puts new sums in the place of the old."""
        seen = copy(self)
        seen.pods, seen.taken, seen.reserved = {**self.pods}, {**self.taken}, {**self.reserved}
        return seen

    def left_to(self, uid: str, standing: Standing, now: float) -> "NodeInfo":
        """The node as a pod finds it: with what it was promised itself, without what others of its priority or above
        were nominated for; where it was itself, of its priority only those before it. On which device, nobody says:
        where they fit once the pods that terminate are gone."""
        if self.inventory is None or not (self.nominated or self.kept or uid in self.reserved):
            return self
        seen = self.as_now()
        if seen.reserved.pop(uid, None):
            seen.recount()
        claims = {each.uid: each for each in (*self.kept.values(), *self.nominated.values()) if now < each.until}
        own = claims.get(uid)
        turn = (-standing.priority, own.until if own else math.inf, uid)
        ahead = [
            each
            for each in claims.values()
            if each.uid not in (uid, *self.taken, *self.reserved) and (-each.priority, each.until, each.uid) < turn
        ]
        left = dict(seen.unheld)
        for pod in self.pods.values():
            if pod.terminating:
                _deduct(left, -pod.ask.mib, self.places[pod.uid])
        for each in sorted(ahead, key=lambda each: (-each.priority, each.uid)):
            indices = _likely(each.ask, left)
            _deduct(left, each.ask.mib, indices)
            seen.taken[each.uid] = self.hold(each.uid, each.ask, indices)
        seen.recount()
        return seen

    def seats(self, standing: Standing) -> bool:
        """Whether the pod keeps within a seat of the node's pool: then the ledger decides, not what is measured."""
        return self.inventory is not None and self.inventory.pool in standing.pools

    def claims(self) -> Iterator[PodInfo | DeviceShare]:
        yield from self.pods.values()
        yield from self.taken.values()
        yield from self.reserved.values()

    def recount(self) -> None:
        """Counts again from the parts, so that no sum can go astray."""
        devices = self.inventory.devices if self.inventory else ()
        self.offered = {device.index: device.offered_mib for device in devices}
        self.largest = sorted(self.offered.values(), reverse=True)
        self.unheld = self._less_what_is_held({device.uuid: device.index for device in devices})
        self.room = self._as_measured(self.unheld)
        self.free = {index: max(mib, 0) for index, mib in self.room.items()}
        self.freest = sorted(self.free.values(), reverse=True)
        self.recount_cpu()

    def recount_cpu(self) -> None:
        """The part of `recount` that a bystander touches. `cpu_milli` is the node's free CPU, None where unknown."""
        whole = self.inventory.cpu_milli if self.inventory else None
        held = sum(claim.ask.cpu_milli for claim in self.claims()) + sum(b.cpu_milli for b in self.bystanders.values())
        self.cpu_milli = None if whole is None else whole - held
        self._changed(self.node)

    def _less_what_is_held(self, by_uuid: Mapping[str, int]) -> dict[int, int]:
        """By the ledger alone; below 0 where more is held than offered. `places` is where each claim was counted.

        A device is known by its UUID: after a change of hardware its index may be another's. A pod of which nobody
        knows where it lies counts where it would have been put, after all others and the largest first.
        """
        left = dict(self.offered)
        self.places: dict[str, tuple[int, ...]] = {}
        lost = []
        for claim in self.claims():
            if claim.uuids is not None:
                self.places[claim.uid] = tuple(by_uuid[uuid] for uuid in claim.uuids if uuid in by_uuid)
            elif claim.indices is not None:
                self.places[claim.uid] = tuple(index for index in claim.indices if index in left)
            else:
                lost.append(claim)
                continue
            _deduct(left, claim.ask.mib, self.places[claim.uid])
        for claim in sorted(lost, key=lambda claim: (-claim.ask.mib, claim.uid)):
            self.places[claim.uid] = _likely(claim.ask, left)
            _deduct(left, claim.ask.mib, self.places[claim.uid])
        return left

    def _as_measured(self, left: Mapping[int, int]) -> dict[int, int]:
        if self.inventory is None or self.reading is None:
            return dict(left)
        free, floor_mib = self.reading.free, self.inventory.floor_mib
        return {index: min(mib, free[index] - floor_mib) if index in free else mib for index, mib in left.items()}

    def fits(self, ask: Ask) -> bool:
        """Whether the ask has room that nobody uses, as far as is measured."""
        return len(self.freest) >= ask.count and self.freest[ask.count - 1] >= ask.mib

    def choice(self, ask: Ask, choose: Chooser, seated: bool = False) -> DeviceChoice | None:
        """What `choose` chooses of the room that nobody uses; for a seat, where there is none, of the ledger's."""
        chosen = choose(ask, self.free, self.cpu_milli)
        return self._choice_by_ledger(ask) if seated and chosen is None else chosen

    def seats_by_ledger(self, ask: Ask, standing: Standing) -> bool:
        """Whether the ledger has room for a seat, whoever uses it."""
        return self.seats(standing) and sum(mib >= ask.mib for mib in self.unheld.values()) >= ask.count

    def _choice_by_ledger(self, ask: Ask) -> DeviceChoice | None:
        """The devices that lack the least, of equals the fullest; it costs more than any choice that lacks nothing."""
        memory = self._memory()
        fitting = sorted(
            (each.lack_mib(ask.mib), each.room_mib, index) for index, each in memory.items() if each.room_mib >= ask.mib
        )[: ask.count]
        if len(fitting) < ask.count:
            return None
        lacking = sum(lack for lack, _, _ in fitting)
        return DeviceChoice(tuple(sorted(index for *_, index in fitting)), _SHORT_COST + lacking)

    def shortages(self, ask: Ask) -> tuple[Shortage, ...]:
        """What keeps a seat from loading on the devices that it would get by the ledger; none where it has no room."""
        memory = self._memory()
        lack = lack_of(ask, memory)
        loadable = sum(each.room_mib >= ask.mib for each in memory.values()) - len(lack.mib)
        least = sorted(lack.mib, key=lambda index: (lack.mib[index], memory[index].room_mib, index))
        return tuple(
            Shortage(
                node=self.node,
                pool=(self.inventory.pool if self.inventory else None) or "",
                index=index,
                mib=lack.mib[index],
                floor_mib=memory[index].floor_mib,
                holders=self._holders(index),
            )
            for index in least[: ask.count - loadable]
        )

    def rooms(self, *, measured: bool) -> dict[int, Room]:
        """What is left of each device by the ledger, and, where that counts, as measured; below 0 where more is held
        than there is."""
        memory = self._memory()
        return {index: Room(each.room_mib, _spare_mib(each) if measured else None) for index, each in memory.items()}

    def used_mib(self, pod: PodInfo | DeviceShare, index: int) -> int:
        """What the pod measurably has of a device; what it declared where nobody knows who uses what."""
        if self.reading is None or self.inventory is None or index not in self.reading.free:
            return pod.ask.mib
        uuid = next(device.uuid for device in self.inventory.devices if device.index == index)
        if uuid in self.reading.unknown:
            return pod.ask.mib
        return sum(use.used_bytes for use in self.reading.uses if (use.uid, use.uuid) == (pod.uid, uuid)) // MIB

    def _memory(self) -> dict[int, DeviceMemory]:
        free, floor_mib = self.reading.free if self.reading else {}, self.inventory.floor_mib if self.inventory else 0
        return {
            index: DeviceMemory(room_mib=mib, free_mib=free.get(index), floor_mib=floor_mib)
            for index, mib in self.unheld.items()
        }

    def _holders(self, index: int) -> tuple[UndeclaredUse, ...]:
        uuid = next((d.uuid for d in self.inventory.devices if d.index == index), None) if self.inventory else None
        used: dict[str, dict[str, int]] = {}
        uses = self.reading.uses if self.reading else ()
        for use in uses:
            used.setdefault(use.uid, {})[use.uuid] = use.used_bytes // MIB
        found = []
        for use in uses:
            if use.uuid == uuid:
                declared_mib = self.pods[use.uid].ask.total_mib if use.uid in self.pods else 0
                over_mib = overshoot_mib(used=used[use.uid], device=uuid, declared_mib=declared_mib)
                found.append(UndeclaredUse(use.namespace, use.pod, over_mib))
        return tuple(sorted((each for each in found if each.mib), key=lambda each: (-each.mib, str(each))))

    def ended(self, uid: str) -> None:
        """A pod's containers are gone, and with them the memory that the last reading shows of them."""
        reading, inventory = self.reading, self.inventory
        if reading is None or inventory is None:
            return
        by_uuid = {device.uuid: device.index for device in inventory.devices}
        free = dict(reading.free)
        for use in reading.uses:
            if use.uid == uid and by_uuid.get(use.uuid) in free:
                free[by_uuid[use.uuid]] += use.used_bytes // MIB
        rest = tuple(use for use in reading.uses if use.uid != uid)
        self.reading = replace(reading, free=free, uses=rest)

    def hold(
        self, uid: str, ask: Ask, indices: tuple[int, ...], until: float | None = None, *, priority: int = 0
    ) -> DeviceShare:
        """A hold on those devices, not yet a part."""
        uuids = {device.index: device.uuid for device in self.inventory.devices} if self.inventory else {}
        named = tuple(uuids[index] for index in indices)
        return DeviceShare(uid=uid, ask=ask, indices=indices, uuids=named, until=until, priority=priority)

    def never(self, ask: Ask) -> str | None:
        """Why the node could not take the ask if every pod left it; None where it could."""
        if self.inventory is None:
            return "has no GPU memory to share that is known"
        if self.inventory.unusable:
            return self.inventory.unusable
        if len(self.largest) < ask.count:
            return f"has {len(self.largest)} of {ask.count} GPUs"
        if self.largest[ask.count - 1] < ask.mib:
            return _shortage(ask, self.largest, "to share")
        return None

    def not_now(self, ask: Ask) -> str:
        """Why an ask that does not fit does not, though it would on the empty node."""
        by_ledger = sorted(self.unheld.values(), reverse=True)
        measured = "" if by_ledger[ask.count - 1] < ask.mib else f", {REFUSED_AS_MEASURED}"
        return _shortage(ask, self.freest, "free") + measured


def _spare_mib(memory: DeviceMemory) -> int | None:
    return None if memory.free_mib is None else memory.free_mib - memory.floor_mib


def _shortage(ask: Ask, largest_first: Sequence[int], what: str) -> str:
    """The largest is always named: it is what a smaller request could get."""
    if ask.count == 1:
        return f"its largest GPU has {largest_first[0]} MiB {what}, not {ask.mib}"
    fitting = sum(mib >= ask.mib for mib in largest_first)
    return f"has {fitting} of {ask.count} GPUs with {ask.mib} MiB {what}, the largest has {largest_first[0]}"


def _deduct(left: dict[int, int], mib: int, indices: tuple[int, ...]) -> None:
    for index in indices:
        left[index] -= mib


def _likely(ask: Ask, left: Mapping[int, int]) -> tuple[int, ...]:
    """Where the ask would be put, or where the most is free."""
    choice = best_fit(ask, left)
    if choice is not None:
        return choice.indices
    freest = sorted(left, key=lambda index: (-left[index], index))
    return tuple(sorted(freest[: ask.count]))
