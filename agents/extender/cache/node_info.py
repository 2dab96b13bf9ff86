"""Computes the free memory of one node's devices from the memory that pods hold. Units: whole MiB of GPU memory."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.pod_info import (
    NO_SEAT,
    Entitlement,
    Holder,
    Nomination,
    PodInfo,
    PodState,
    PodWithoutGpu,
    UnreadablePod,
)
from agents.extender.preemption import PotentialVictim, Room, lowest_victims
from agents.telemetry.reading import PodUse
from tenancy.devices.allocate import Chooser, DeviceChoice, MemoryRequest, best_fit
from tenancy.devices.recycle import overshoot_mib
from tenancy.devices.waiting import DeviceMemory, lack_of
from tenancy.names import REFUSED_AS_KEPT, REFUSED_AS_MEASURED
from tenancy.units import MIB

# The cost of devices with too little unused memory. The cost of such a device is above the cost of all other devices.
_SHORT_COST = 1 << 40


@dataclass(frozen=True)
class MeasuredMemory:
    """The reading of a node: the free MiB of each device, and the pods that use the devices. The reading is valid until
    the monotonic time `until`.

    `unknown` has the UUIDs of devices with unknown processes.
    """

    free: Mapping[int, int]
    until: float
    uses: tuple[PodUse, ...] = ()
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True)
class UndeclaredUse:
    """A pod that uses `mib` of a device beyond its request. `name` is empty if the exporter does not know the pod."""

    namespace: str
    name: str
    mib: int

    def __str__(self) -> str:
        pod = f"{self.namespace}/{self.name}" if self.name else "a pod whose name is not known yet"
        return f"{pod} by {self.mib} MiB"


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """A device that has enough memory for a seat by the ledger, although other pods now use a part of this memory.

    If other pods release `mib` MiB, the device stays above its floor after the seat's pod has allocated its budget.
    `holders` are the pods over their budgets on the device, with the largest overshoot first.
    """

    node: str
    pool: str
    index: int
    mib: int
    floor_mib: int
    holders: tuple[UndeclaredUse, ...] = ()


def _unwatched(node: str) -> None:
    del node


class NodeInfo:
    """One node with its devices and pods. After each change of the node, call `recount`.

    `unheld` is the MiB that a device offers minus the MiB that pods hold on the device. `kept` is the MiB that absent
    seats need on a device (tenancy/devices/absent.py). `room` is `unheld` minus `kept`. `free` is at most `room`, and
    at most the measured free memory minus the floor. `recount` and `keep` call `changed` with the name of the node.
    """

    def __init__(self, node: str, changed: Callable[[str], object] = _unwatched) -> None:
        self.node = node
        self.inventory: NodeDevices | None = None
        self.pods: dict[str, PodInfo] = {}
        self.pods_without_gpu: dict[str, PodWithoutGpu] = {}
        self.nominated: dict[str, Nomination] = {}
        self.unreadable: dict[str, UnreadablePod] = {}
        self.reading: MeasuredMemory | None = None
        self.kept: Mapping[int, int] = {}
        self.changed = changed
        self.recount()

    @property
    def is_idle(self) -> bool:
        """Returns True if the node is unknown to the cache and has no pod."""
        return self.inventory is None and not (self.pods or self.pods_without_gpu or self.nominated or self.unreadable)

    def add(self, part: Holder | Nomination) -> None:
        self._parts(part)[part.uid] = part

    def remove(self, part: Holder | Nomination) -> None:
        del self._parts(part)[part.uid]

    def _parts(self, part: Holder | Nomination) -> dict[str, Any]:
        if isinstance(part, PodInfo):
            return self.pods
        if isinstance(part, UnreadablePod):
            return self.unreadable
        return self.pods_without_gpu if isinstance(part, PodWithoutGpu) else self.nominated

    def copy(self) -> "NodeInfo":
        """Returns a copy of the node that a thread can read without a lock. `recount` makes new mappings and leaves the
        old mappings unchanged.
        """
        seen = NodeInfo.__new__(NodeInfo)
        seen.__dict__.update(self.__dict__)  # `copy.copy` takes several times as long
        seen.changed = _unwatched
        seen.pods, seen.pods_without_gpu = {**self.pods}, {**self.pods_without_gpu}
        seen.nominated, seen.unreadable = {**self.nominated}, {**self.unreadable}
        return seen

    def left_to(
        self, uid: str, entitlement: Entitlement, now: float, kept: Mapping[int, int] | None = None
    ) -> "NodeInfo":
        """Returns a copy of the node with the memory that this pod may use. `kept` replaces the memory that is kept for
        absent seats, because a part of it is kept for this pod.

        The copy leaves out the reservation of the pod itself. The copy keeps memory for nominated pods of a higher
        priority, and for earlier nominated pods of the same priority. The devices of a nominated pod are not known. The
        best-fit method chooses devices for a nominated pod as if all terminating pods had ended.
        """
        own = self.pods.get(uid)
        is_reserved = own is not None and own.state is PodState.RESERVED
        kept = self.kept if kept is None else kept
        if self.inventory is None or not (self.nominated or is_reserved or kept != self.kept):
            return self
        seen = self.copy()
        if kept != self.kept:
            seen.keep(kept)
        if not (self.nominated or is_reserved):
            return seen
        if is_reserved:
            del seen.pods[uid]
            seen.recount()
        nominated = {each.uid: each for each in self.nominated.values() if now < each.ends}
        turn = (-entitlement.priority, nominated[uid].ends if uid in nominated else math.inf, uid)
        ahead = [
            each
            for each in nominated.values()
            if each.uid != uid and each.uid not in self.pods and (-each.priority, each.ends, each.uid) < turn
        ]
        left = dict(seen.unheld)
        for pod in self.pods.values():
            if pod.state is PodState.TERMINATING:
                _deduct(left, -pod.request.mib, self.places[pod.uid])
        for each in sorted(ahead, key=lambda each: (-each.priority, each.uid)):
            indices = _likely(each.request, left)
            _deduct(left, each.request.mib, indices)
            seen.pods[each.uid] = self._assumed(each.uid, each.request, indices)
        seen.recount()
        return seen

    def only(self, indices: Collection[int]) -> "NodeInfo":
        """Returns a copy in which a pod may use these devices alone, and all their memory that no pod holds."""
        seen = self.copy()
        seen.keep({index: mib for index, mib in self.unheld.items() if index not in indices})
        return seen

    def keep(self, kept: Mapping[int, int]) -> None:
        """Sets the MiB of each device that are kept for absent seats."""
        self.kept = kept
        self._count_free()

    def seats(self, entitlement: Entitlement) -> bool:
        """Returns True if the pod's request is not larger than a seat of the node's pool. Readings do not limit the pod
        of a seat.
        """
        return self.inventory is not None and not self.unreadable and self.inventory.pool in entitlement.pools

    def recount(self) -> None:
        devices = self.inventory.devices if self.inventory else ()
        self.offered = {device.index: device.offered_mib for device in devices}
        self.largest = sorted(self.offered.values(), reverse=True)
        self.unheld = self._without_held({device.uuid: device.index for device in devices})
        whole = self.inventory.cpu_milli if self.inventory else None
        held = sum(pod.request.cpu_milli for pod in self.pods.values()) + sum(
            b.cpu_milli for b in self.pods_without_gpu.values()
        )
        self.cpu_milli = None if whole is None else whole - held  # the free CPU of the node in millicores
        self._count_free()

    def _count_free(self) -> None:
        self.room = {index: mib - self.kept.get(index, 0) for index, mib in self.unheld.items()}
        self.free = self.as_measured(self.room)
        self.freest = sorted(self.free.values(), reverse=True)
        self.changed(self.node)

    def _without_held(self, by_uuid: Mapping[str, int]) -> dict[int, int]:
        """Returns the MiB of each device that no pod holds. Also stores the devices of each pod in `places`.

        If pods hold more than a device offers, the device's MiB are negative. For a pod with unknown devices, the
        best-fit method chooses the devices. Pods with unknown devices get their devices last, with the largest pod
        first.
        """
        left = dict(self.offered)
        self.places: dict[str, tuple[int, ...]] = {}
        lost = []
        for pod in self.pods.values():
            if pod.uuids is not None:
                self.places[pod.uid] = tuple(by_uuid[uuid] for uuid in pod.uuids if uuid in by_uuid)
            elif pod.indices is not None:
                self.places[pod.uid] = tuple(index for index in pod.indices if index in left)
            else:
                lost.append(pod)
                continue
            _deduct(left, pod.request.mib, self.places[pod.uid])
        for pod in sorted(lost, key=lambda pod: (-pod.request.mib, pod.uid)):
            self.places[pod.uid] = _likely(pod.request, left)
            _deduct(left, pod.request.mib, self.places[pod.uid])
        return left

    def as_measured(self, left: Mapping[int, int]) -> dict[int, int]:
        """Returns the part of `left` on each device that a pod without a seat may still request. The part is at least
        0.
        """
        if self.unreadable:
            return dict.fromkeys(left, 0)
        free = self.reading.free if self.reading else {}
        floor_mib = self.inventory.floor_mib if self.inventory else 0
        return {i: max(min(mib, free[i] - floor_mib) if i in free else mib, 0) for i, mib in left.items()}

    def fits(self, request: MemoryRequest) -> bool:
        return len(self.freest) >= request.count and self.freest[request.count - 1] >= request.mib

    def choice(self, request: MemoryRequest, choose: Chooser, seated: bool = False) -> DeviceChoice | None:
        """Returns the devices that `choose` selects by their unused memory.

        If too little memory is unused, a seat gets devices that are free by the ledger. The devices with the smallest
        shortage come first. Devices with equal shortages are sorted by their memory that is free by the ledger, with
        the smallest first. A device with a shortage costs more than any device with enough unused memory.
        """
        chosen = choose(request, self.free, self.cpu_milli)
        if chosen is not None or not seated:
            return chosen
        fitting = sorted(
            (each.lack_mib(request.mib), each.room_mib, index)
            for index, each in self._memory().items()
            if each.room_mib >= request.mib
        )[: request.count]
        if len(fitting) < request.count:
            return None
        return DeviceChoice(tuple(sorted(index for *_, index in fitting)), _SHORT_COST + sum(f[0] for f in fitting))

    def assumed(self, uid: str, request: MemoryRequest, choose: Chooser, entitlement: Entitlement) -> PodInfo | None:
        """Returns the assumed pod with the best devices, or None if the pod does not fit. The node stays unchanged."""
        choice = self.choice(request, choose, self.seats(entitlement))
        return None if choice is None else self._assumed(uid, request, choice.indices, entitlement)

    def _assumed(
        self, uid: str, request: MemoryRequest, indices: tuple[int, ...], entitlement: Entitlement = NO_SEAT
    ) -> PodInfo:
        by_index = {device.index: device.uuid for device in self.inventory.devices} if self.inventory else {}
        uuids = tuple(by_index[index] for index in indices)
        state = PodState.ASSUMED
        return PodInfo(
            uid=uid,
            namespace=entitlement.tenant,
            node=self.node,
            request=request,
            state=state,
            indices=indices,
            uuids=uuids,
            priority=entitlement.priority,
            seat=entitlement.seat,
        )

    def seats_by_ledger(self, request: MemoryRequest, entitlement: Entitlement) -> bool:
        """Returns True if the seat fits the node by the ledger, even if other pods use the memory."""
        return self.seats(entitlement) and sum(mib >= request.mib for mib in self.room.values()) >= request.count

    def shortages(self, request: MemoryRequest) -> tuple[Shortage, ...]:
        """Returns the shortages of the devices that the seat would get by the ledger. Returns () if the seat does not
        fit by the ledger.
        """
        memory = self._memory()
        lack = lack_of(request, memory)
        loadable = sum(each.room_mib >= request.mib for each in memory.values()) - len(lack.mib)
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
            for index in least[: request.count - loadable]
        )

    def victims(
        self,
        request: MemoryRequest,
        candidates: Collection[str],
        seated: Collection[str],
        server_now: datetime | None,
        *,
        measured: bool,
        returning: Collection[str] = (),
    ) -> tuple[str, ...] | None:
        """Returns the candidates to evict so that the request fits. The highest priority comes first.

        Returns None if evictions would not help. A terminating pod counts as ended before its deadline `due`. A pod
        with unknown devices is never a victim, because its eviction might free the wrong devices. If `measured` is
        True, the measured free memory must also be enough for the request. The eviction of a victim in `seated` frees
        only its overshoot, because the controller creates a new pod with the same request. When a pod in `returning`
        ends, its memory is kept for its seat.
        """
        if self.never(request):
            return None
        free = {
            index: Room(each.room_mib, _above_floor_mib(each) if measured else None)
            for index, each in self._memory().items()
            if self.offered[index] >= request.mib
        }
        potential = []
        for pod in self.pods.values():
            used = {index: self._used_mib(pod, index) for index in self.places[pod.uid]}
            mib = 0 if pod.uid in returning else pod.request.mib
            if pod.is_going(server_now):
                free |= {index: free[index].more(mib, used[index]) for index in used if index in free}
            elif pod.uid in candidates and pod.is_placed:
                seat = pod.uid in seated
                potential.append(
                    PotentialVictim(uid=pod.uid, priority=pod.priority, mib=mib, used_mib=used, seated=seat)
                )
        return lowest_victims(request, free, potential)

    def by_priority(self, uids: Iterable[str]) -> tuple[str, ...]:
        """Returns these pods in kube-scheduler's order of victims, with the highest priority first."""
        known: dict[str, PodInfo | PodWithoutGpu] = {**self.pods_without_gpu, **self.pods}
        priorities = {uid: pod.priority for uid, pod in known.items()}
        return tuple(sorted(uids, key=lambda uid: (-priorities.get(uid, 0), uid)))

    def _used_mib(self, pod: PodInfo, index: int) -> int:
        """Returns the measured MiB of the device that the pod uses. If the reading is missing or incomplete, returns
        the request of the pod.
        """
        uuid = self._uuid(index)
        if self.reading is None or index not in self.reading.free or uuid in self.reading.unknown:
            return pod.request.mib
        return sum(use.used_bytes for use in self.reading.uses if (use.uid, use.uuid) == (pod.uid, uuid)) // MIB

    def _uuid(self, index: int) -> str | None:
        devices = self.inventory.devices if self.inventory else ()
        return next((device.uuid for device in devices if device.index == index), None)

    def _memory(self) -> dict[int, DeviceMemory]:
        free, floor_mib = self.reading.free if self.reading else {}, self.inventory.floor_mib if self.inventory else 0
        return {
            index: DeviceMemory(room_mib=mib, free_mib=free.get(index), floor_mib=floor_mib)
            for index, mib in self.room.items()
        }

    def _holders(self, index: int) -> tuple[UndeclaredUse, ...]:
        uuid = self._uuid(index)
        uses = self.reading.uses if self.reading else ()
        used: dict[str, dict[str, int]] = {}
        for use in uses:
            used.setdefault(use.uid, {})[use.uuid] = use.used_bytes // MIB
        found = []
        for use in uses:
            if use.uuid == uuid:
                pod = self.pods.get(use.uid)
                over_mib = overshoot_mib(
                    used=used[use.uid],
                    device=uuid,
                    declared_mib=pod.request.total_mib if pod else 0,
                    placed_on=pod.uuids if pod else None,
                )
                found.append(UndeclaredUse(use.namespace, use.pod, over_mib))
        return tuple(sorted((each for each in found if each.mib), key=lambda each: (-each.mib, str(each))))

    def ended(self, uid: str) -> None:
        """After a pod has ended, adds the memory that it used to the free memory of the reading."""
        if self.reading is None or self.inventory is None:
            return
        by_uuid = {device.uuid: device.index for device in self.inventory.devices}
        free = dict(self.reading.free)
        for use in self.reading.uses:
            if use.uid == uid and by_uuid.get(use.uuid) in free:
                free[by_uuid[use.uuid]] += use.used_bytes // MIB
        rest = tuple(use for use in self.reading.uses if use.uid != uid)
        self.reading = replace(self.reading, free=free, uses=rest)

    def never(self, request: MemoryRequest) -> str | None:
        """Returns the reason why the request would be too large even for the empty node, or None."""
        if self.inventory is None:
            return "has no GPU memory to share that is known"
        if self.inventory.unusable:
            return self.inventory.unusable
        if self.unreadable:
            return f"a pod here is unreadable and may hold any device: {min(p.name for p in self.unreadable.values())}"
        if len(self.largest) < request.count:
            return f"has {len(self.largest)} of {request.count} GPUs"
        if self.largest[request.count - 1] < request.mib:
            return _shortage(request, self.largest, "to share")
        return None

    def not_now(self, request: MemoryRequest) -> str:
        """Returns the reason why the request does not fit now. The caller has checked that the request would fit on the
        node without pods.
        """
        if _fits(request, self.room):
            why = f", {REFUSED_AS_MEASURED}"
        else:
            why = f", {REFUSED_AS_KEPT}" if _fits(request, self.unheld) else ""
        return _shortage(request, self.freest, "free") + why


def _fits(request: MemoryRequest, left: Mapping[int, int]) -> bool:
    return sum(mib >= request.mib for mib in left.values()) >= request.count


def _above_floor_mib(memory: DeviceMemory) -> int | None:
    return None if memory.free_mib is None else memory.free_mib - memory.floor_mib


def _shortage(request: MemoryRequest, largest_first: Sequence[int], what: str) -> str:
    """Returns a reason that names the free memory of the node's largest GPU, so that the pod's author can
    request less.
    """
    if request.count == 1:
        return f"its largest GPU has {largest_first[0]} MiB {what}, not {request.mib}"
    fitting = sum(mib >= request.mib for mib in largest_first)
    return f"has {fitting} of {request.count} GPUs with {request.mib} MiB {what}, the largest has {largest_first[0]}"


def _deduct(left: dict[int, int], mib: int, indices: tuple[int, ...]) -> None:
    for index in indices:
        left[index] -= mib


def _likely(request: MemoryRequest, left: Mapping[int, int]) -> tuple[int, ...]:
    """Returns the devices that the best-fit method chooses for the request. If the request does not fit, returns the
    devices with the most free memory.
    """
    choice = best_fit(request, left)
    if choice is not None:
        return choice.indices
    freest = sorted(left, key=lambda index: (-left[index], index))
    return tuple(sorted(freest[: request.count]))


def shortages_on(nodes: Iterable[NodeInfo], request: MemoryRequest, entitlement: Entitlement) -> tuple[Shortage, ...]:
    """Returns the devices that have enough memory for a seat by the ledger, although other pods use this memory."""
    return tuple(each for node in nodes if node.seats(entitlement) for each in node.shortages(request))
