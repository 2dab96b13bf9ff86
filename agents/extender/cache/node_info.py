"""Computes the free memory of one node's devices from the pods that hold it. Units: whole MiB of GPU memory."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.pod_info import Entitlement, Nomination, PodInfo, PodState, PodWithoutGpu
from agents.extender.preemption import PotentialVictim, Room, fewest_victims
from agents.telemetry.reading import PodUse
from tenancy.devices.allocate import Chooser, DeviceChoice, MemoryRequest, best_fit
from tenancy.devices.recycle import overshoot_mib
from tenancy.devices.waiting import DeviceMemory, lack_of
from tenancy.names import REFUSED_AS_MEASURED
from tenancy.units import MIB

# The cost of devices with too little unused memory. Any devices with enough unused memory cost less.
_SHORT_COST = 1 << 40


@dataclass(frozen=True)
class MeasuredMemory:
    """A node's reading: the free MiB by device index, and the pods that use the devices. The reading is valid until the
    monotonic time `until`.

    `unknown` has the UUIDs of the devices with unknown processes.
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
    """A device that has enough free memory for a seat by the ledger, while other pods use this memory.

    After other pods have freed `mib` MiB, the seat's pod can allocate its budget and the device stays above its floor.
    `holders` are the pods over their budgets on the device, the largest overshoot first.
    """

    node: str
    pool: str
    index: int
    mib: int
    floor_mib: int
    holders: tuple[UndeclaredUse, ...] = ()


class NodeInfo:
    """One node with its devices and pods. Call `recount` after each change.

    `unheld` is the MiB that a device offers minus the MiB that pods hold. `free` is at most `unheld`, and at most the
    measured free memory minus the floor. `recount` calls `changed` with the node's name.
    """

    def __init__(self, node: str, changed: Callable[[str], object] = lambda node: None) -> None:
        self.node = node
        self.inventory: NodeDevices | None = None
        self.pods: dict[str, PodInfo] = {}
        self.pods_without_gpu: dict[str, PodWithoutGpu] = {}
        self.nominated: dict[str, Nomination] = {}
        self.reading: MeasuredMemory | None = None
        self._changed = changed
        self.recount()

    @property
    def is_idle(self) -> bool:
        """Returns True if the node is unknown and has no pod."""
        return self.inventory is None and not (self.pods or self.pods_without_gpu or self.nominated)

    def add(self, part: PodInfo | PodWithoutGpu | Nomination) -> None:
        self._parts(part)[part.uid] = part

    def remove(self, part: PodInfo | PodWithoutGpu | Nomination) -> None:
        del self._parts(part)[part.uid]

    def _parts(self, part: PodInfo | PodWithoutGpu | Nomination) -> dict[str, Any]:
        if isinstance(part, PodInfo):
            return self.pods
        return self.pods_without_gpu if isinstance(part, PodWithoutGpu) else self.nominated

    def copy(self) -> "NodeInfo":
        """Returns a copy that needs no lock: `recount` makes new mappings and does not change the old mappings."""
        seen = copy(self)
        seen.pods, seen.pods_without_gpu, seen.nominated = {**self.pods}, {**self.pods_without_gpu}, {**self.nominated}
        return seen

    def left_to(self, uid: str, entitlement: Entitlement, now: float) -> "NodeInfo":
        """Returns a copy of the node with the memory that this pod may use.

        The copy does not count the pod's own reservation as held. It counts memory as held for nominated pods with a
        higher priority, and for earlier nominated pods with the same priority. The devices of a nominated pod are not
        known. Best fit chooses these devices as if all terminating pods had ended.
        """
        own = self.pods.get(uid)
        is_reserved = own is not None and own.state is PodState.RESERVED
        if self.inventory is None or not (self.nominated or is_reserved):
            return self
        seen = self.copy()
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

    def seats(self, entitlement: Entitlement) -> bool:
        """Returns True if the pod's request is within a seat of the node's pool. Readings do not limit such a pod."""
        return self.inventory is not None and self.inventory.pool in entitlement.pools

    def recount(self) -> None:
        devices = self.inventory.devices if self.inventory else ()
        self.offered = {device.index: device.offered_mib for device in devices}
        self.largest = sorted(self.offered.values(), reverse=True)
        self.unheld = self._without_held({device.uuid: device.index for device in devices})
        self.free = self._as_measured(self.unheld)
        self.freest = sorted(self.free.values(), reverse=True)
        whole = self.inventory.cpu_milli if self.inventory else None
        held = sum(pod.request.cpu_milli for pod in self.pods.values()) + sum(
            b.cpu_milli for b in self.pods_without_gpu.values()
        )
        self.cpu_milli = None if whole is None else whole - held  # the free CPU in millicores
        self._changed(self.node)

    def _without_held(self, by_uuid: Mapping[str, int]) -> dict[int, int]:
        """Returns the MiB of each device that no pod holds, and sets `places`, the devices that each pod holds.

        The MiB of a device are negative if pods hold more than the device offers. For a pod with unknown devices, best
        fit chooses the devices. Such pods are placed last, the largest first.
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

    def _as_measured(self, left: Mapping[int, int]) -> dict[int, int]:
        """Returns the MiB of each device that a pod without a seat may still request, at least 0."""
        free = self.reading.free if self.reading else {}
        floor_mib = self.inventory.floor_mib if self.inventory else 0
        return {i: max(min(mib, free[i] - floor_mib) if i in free else mib, 0) for i, mib in left.items()}

    def fits(self, request: MemoryRequest) -> bool:
        return len(self.freest) >= request.count and self.freest[request.count - 1] >= request.mib

    def choice(self, request: MemoryRequest, choose: Chooser, seated: bool = False) -> DeviceChoice | None:
        """Returns the devices that `choose` selects by unused memory.

        If no devices have enough unused memory, a seat gets devices that are free by the ledger. The devices with the
        smallest shortage come first. Of devices with equal shortages, the device with the least memory that is free by
        the ledger comes first. Such devices cost more than any devices with enough unused memory.
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
        """Returns the assumed pod with the best devices, or None if the pod does not fit.

        Does not change the node.
        """
        choice = self.choice(request, choose, self.seats(entitlement))
        return None if choice is None else self._assumed(uid, request, choice.indices, entitlement.priority)

    def _assumed(self, uid: str, request: MemoryRequest, indices: tuple[int, ...], priority: int = 0) -> PodInfo:
        by_index = {device.index: device.uuid for device in self.inventory.devices} if self.inventory else {}
        uuids = tuple(by_index[index] for index in indices)
        state = PodState.ASSUMED
        return PodInfo(
            uid=uid, node=self.node, request=request, state=state, indices=indices, uuids=uuids, priority=priority
        )

    def seats_by_ledger(self, request: MemoryRequest, entitlement: Entitlement) -> bool:
        """Returns True if the seat fits the node by the ledger, even if other pods use the memory."""
        return self.seats(entitlement) and sum(mib >= request.mib for mib in self.unheld.values()) >= request.count

    def shortages(self, request: MemoryRequest) -> tuple[Shortage, ...]:
        """Returns a shortage for each device that the seat would get although its measured free memory is too small.
        Returns () if the seat does not fit.
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
    ) -> tuple[str, ...] | None:
        """Returns the candidates to evict so that the request fits, the highest priority first.

        Returns None if evictions would not help. A terminating pod counts as ended until its deadline `due`. A pod with
        unknown devices is never a victim, because its end might free other devices. If `measured` is True, a victim
        frees the memory that it uses, not its request. A victim in `seated` frees only its use beyond its request,
        because the pod comes back.
        """
        if self.never(request):
            return None
        free = {
            index: Room(each.room_mib, _spare_mib(each) if measured else None)
            for index, each in self._memory().items()
            if self.offered[index] >= request.mib
        }
        potential = []
        for pod in self.pods.values():
            used = {index: self._used_mib(pod, index) for index in self.places[pod.uid]}
            if pod.is_going(server_now):
                free |= {index: free[index].more(pod.request.mib, used[index]) for index in used if index in free}
            elif pod.uid in candidates and pod.is_placed:
                seat = pod.uid in seated
                potential.append(
                    PotentialVictim(uid=pod.uid, priority=pod.priority, mib=pod.request.mib, used_mib=used, seated=seat)
                )
        return fewest_victims(request, free, potential)

    def by_priority(self, uids: Iterable[str]) -> tuple[str, ...]:
        """Returns these pods in kube-scheduler's order of victims: the highest priority first."""
        known: dict[str, PodInfo | PodWithoutGpu] = {**self.pods_without_gpu, **self.pods}
        priorities = {uid: pod.priority for uid, pod in known.items()}
        return tuple(sorted(uids, key=lambda uid: (-priorities.get(uid, 0), uid)))

    def _used_mib(self, pod: PodInfo, index: int) -> int:
        """Returns the measured MiB that the pod uses of a device. If the reading is missing or incomplete, returns the
        pod's request.
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
            for index, mib in self.unheld.items()
        }

    def _holders(self, index: int) -> tuple[UndeclaredUse, ...]:
        """Returns the pods that use more of the device than they requested, the largest overshoot first."""
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
        """Adds the memory of a pod that has ended to the free memory of the reading."""
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
        """Returns the reason why the request would be too large even for the node without pods, or None."""
        if self.inventory is None:
            return "has no GPU memory to share that is known"
        if self.inventory.unusable:
            return self.inventory.unusable
        if len(self.largest) < request.count:
            return f"has {len(self.largest)} of {request.count} GPUs"
        if self.largest[request.count - 1] < request.mib:
            return _shortage(request, self.largest, "to share")
        return None

    def not_now(self, request: MemoryRequest) -> str:
        """Returns the reason why the request does not fit now. The request would fit on the node without pods."""
        by_ledger = sorted(self.unheld.values(), reverse=True)
        measured = "" if by_ledger[request.count - 1] < request.mib else f", {REFUSED_AS_MEASURED}"
        return _shortage(request, self.freest, "free") + measured


def _spare_mib(memory: DeviceMemory) -> int | None:
    return None if memory.free_mib is None else memory.free_mib - memory.floor_mib


def _shortage(request: MemoryRequest, largest_first: Sequence[int], what: str) -> str:
    """Returns a reason that names the memory of the largest GPU, so that the user can request less."""
    if request.count == 1:
        return f"its largest GPU has {largest_first[0]} MiB {what}, not {request.mib}"
    fitting = sum(mib >= request.mib for mib in largest_first)
    return f"has {fitting} of {request.count} GPUs with {request.mib} MiB {what}, the largest has {largest_first[0]}"


def _deduct(left: dict[int, int], mib: int, indices: tuple[int, ...]) -> None:
    for index in indices:
        left[index] -= mib


def _likely(request: MemoryRequest, left: Mapping[int, int]) -> tuple[int, ...]:
    """Returns the devices that best fit chooses for the request. If the request does not fit, returns the devices with
    the most free memory.
    """
    choice = best_fit(request, left)
    if choice is not None:
        return choice.indices
    freest = sorted(left, key=lambda index: (-left[index], index))
    return tuple(sorted(freest[: request.count]))


def shortages_on(nodes: Iterable[NodeInfo], request: MemoryRequest, entitlement: Entitlement) -> tuple[Shortage, ...]:
    """Returns the devices of these nodes that a seat cannot have now only because other pods use their memory."""
    return tuple(each for node in nodes if node.seats(entitlement) for each in node.shortages(request))
