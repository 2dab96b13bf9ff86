"""Computes the free memory of one node's devices, and the room that a pod has on them.

The free memory of a device is what it offers minus what pods hold. A pod has room for the free memory that absent seats
of others do not need. As measured, its room is at most the unused memory above the floor. Units: whole MiB of GPU
memory.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime

from agents.extender.cache.inventory import NodeDevice, NodeDevices
from agents.extender.cache.pod_info import Entitlement, Known, PodInfo, PodState, PodWithoutGpu
from agents.extender.cache.reading import MeasuredMemory, UndeclaredUse
from agents.extender.preemption import PotentialVictim, lowest_victims
from tenancy.devices.allocate import Chooser, DeviceChoice, MemoryRequest, best_fit
from tenancy.devices.waiting import DeviceMemory, least_short
from tenancy.names import REFUSED_AS_KEPT, REFUSED_AS_MEASURED


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


@dataclass(frozen=True, kw_only=True)
class DeviceUsage(NodeDevice):
    """One device with its pods. `room_mib` is the memory that a new pod without a seat could get.

    `measured_free_mib` is None without a fresh reading.
    """

    room_mib: int
    measured_free_mib: int | None
    pods: tuple[PodInfo, ...]

    @property
    def held_mib(self) -> int:
        return sum(pod.request.mib for pod in self.pods)


class NodeInfo:
    """One node with its devices and pods at one moment. No method changes a node, so any thread may read one.

    `offered`, `free`, `room` and `measured_room` have the MiB of each device, and `places` has the devices of each pod.
    `absent` has the MiB of each device that absent seats need (tenancy/devices/absent.py). `cpu_milli` is the free CPU
    in millicores, or None if it is unknown.
    """

    def __init__(
        self,
        node: str,
        inventory: NodeDevices | None = None,
        pods: Iterable[Known] = (),
        reading: MeasuredMemory | None = None,
    ) -> None:
        known = [*pods]
        requesting = [pod for pod in known if isinstance(pod, PodInfo)]
        self.node = node
        self.inventory = inventory
        self.pods = {pod.uid: pod for pod in requesting if pod.state is not PodState.NOMINATED}
        self.nominated = [pod for pod in requesting if pod.state is PodState.NOMINATED]
        self.pods_without_gpu = {pod.uid: pod for pod in known if isinstance(pod, PodWithoutGpu)}
        self.reading = reading
        devices = inventory.devices if inventory else ()
        self.offered = {device.index: device.offered_mib for device in devices}
        self.places: dict[str, tuple[int, ...]] = {}
        self.free = self._free({device.uuid: device.index for device in devices})
        held = sum(pod.request.cpu_milli for pod in self.pods.values())
        held += sum(pod.cpu_milli for pod in self.pods_without_gpu.values())
        whole = inventory.cpu_milli if inventory else None
        self.cpu_milli = None if whole is None else whole - held
        self.absent: Mapping[int, int] = {}
        self.room: Mapping[int, int] = self.free
        self.measured_room = self.as_measured(self.free)

    @property
    def pool(self) -> str:
        return (self.inventory.pool if self.inventory else None) or ""

    @property
    def devices(self) -> tuple[DeviceUsage, ...]:
        pods = sorted(self.pods.values(), key=lambda pod: pod.uid)
        measured = self.reading.unused if self.reading else {}
        return tuple(
            DeviceUsage(
                **vars(device),
                room_mib=self.measured_room[device.index],
                measured_free_mib=measured.get(device.index),
                pods=tuple(pod for pod in pods if device.index in self.places[pod.uid]),
            )
            for device in (self.inventory.devices if self.inventory else ())
        )

    @property
    def adrift(self) -> tuple[PodInfo, ...]:
        """Returns the pods that have no known device of the node."""
        pods = sorted(self.pods.values(), key=lambda pod: pod.uid)
        return tuple(pod for pod in pods if not self.places[pod.uid])

    def _free(self, by_uuid: Mapping[str, int]) -> dict[int, int]:
        """Returns the free MiB of each device, and stores the devices of each pod in `places`.

        If pods hold more than a device offers, the device's MiB are negative. For a pod with unknown devices, the
        best-fit method chooses the devices. Pods with unknown devices get their devices last, with the largest pod
        first.
        """
        left = dict(self.offered)
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

    def for_pod(self, uid: str, priority: int, now: float, absent: Mapping[int, int]) -> "NodeInfo":
        """Returns the node as this pod finds it. `absent` has the MiB that absent seats of others need.

        Memory is kept for nominated pods of a higher priority, and for earlier nominated pods of the same priority. The
        devices of a nominated pod are not known. The best-fit method chooses devices for a nominated pod as if all
        terminating pods had ended.
        """
        if not self.nominated:
            return self if absent == self.absent else self.with_absent(absent)
        nominated = {each.uid: each for each in self.nominated if each.ends is None or now < each.ends}
        turn = (-priority, nominated[uid].since if uid in nominated else math.inf, uid)
        ahead = [
            each for each in nominated.values() if each.uid != uid and (-each.priority, each.since, each.uid) < turn
        ]
        if self.inventory is None or not ahead:
            return self.with_absent(absent)
        pods: list[Known] = [*self.pods.values(), *self.pods_without_gpu.values()]
        left = dict(self.free)
        for pod in self.pods.values():
            if pod.state is PodState.TERMINATING:
                _deduct(left, -pod.request.mib, self.places[pod.uid])
        for each in sorted(ahead, key=lambda each: (-each.priority, each.uid)):
            indices = _likely(each.request, left)
            _deduct(left, each.request.mib, indices)
            pods.append(replace(each, state=PodState.RESERVED, indices=indices, uuids=None))
        return NodeInfo(self.node, self.inventory, pods, self.reading).with_absent(absent)

    def with_absent(self, absent: Mapping[int, int]) -> "NodeInfo":
        """Returns the node as if absent seats needed these MiB."""
        seen = copy(self)
        seen.absent = absent
        seen.room = {index: mib - absent.get(index, 0) for index, mib in self.free.items()}
        seen.measured_room = self.as_measured(seen.room)
        return seen

    def as_measured(self, room: Mapping[int, int]) -> dict[int, int]:
        """Returns the part of `room` on each device that is unused and above the floor. The part is at least 0."""
        unused = self.reading.unused if self.reading else {}
        floor_mib = self.inventory.floor_mib if self.inventory else 0
        return {i: max(min(mib, unused[i] - floor_mib) if i in unused else mib, 0) for i, mib in room.items()}

    def seats(self, entitlement: Entitlement) -> bool:
        """Returns True if the pod's request is not larger than a seat of the node's pool. Readings do not limit the pod
        of a seat.
        """
        return self.pool in entitlement.pools

    def fits(self, request: MemoryRequest, entitlement: Entitlement | None = None) -> bool:
        """Returns True if the pod has room as measured, or by the ledger if it is a seat's pod with `entitlement`."""
        seated = entitlement is not None and self.seats(entitlement)
        return has_room(request, self.room if seated else self.measured_room)

    def offers(self, pod: PodInfo) -> bool:
        """Returns True if the node still has the devices of a pod, and enough memory there for all pods."""
        places = self.places[pod.uid]
        return len(places) == pod.request.count and all(self.free[index] >= 0 for index in places)

    def choice(self, request: MemoryRequest, choose: Chooser) -> DeviceChoice | None:
        """Returns the devices that `choose` selects by the measured room."""
        return choose(request, self.measured_room, self.cpu_milli)

    def choice_by_ledger(self, request: MemoryRequest) -> DeviceChoice | None:
        """Returns devices for a seat while others use its memory (`least_short`). The cost is the sum of the
        shortages.
        """
        lacks = self._lacks(request)
        return DeviceChoice(tuple(sorted(lacks)), sum(lacks.values())) if lacks else None

    def uuids(self, indices: Iterable[int]) -> tuple[str, ...]:
        by_index = {device.index: device.uuid for device in self.inventory.devices} if self.inventory else {}
        return tuple(by_index[index] for index in indices)

    def shortages(self, request: MemoryRequest, recorded: Mapping[str, int]) -> tuple[Shortage, ...]:
        """Returns the shortages of the devices that the seat would get by the ledger. Returns () if the seat does not
        fit by the ledger.

        The holders leave out each pod that exceeds its request by at most the `recorded` MiB of its tenant.
        """
        return tuple(
            Shortage(
                node=self.node,
                pool=self.pool,
                index=index,
                mib=mib,
                floor_mib=self.inventory.floor_mib if self.inventory else 0,
                holders=self.reading.over_budget(self.uuids((index,))[0], self.pods, recorded) if self.reading else (),
            )
            for index, mib in self._lacks(request).items()
            if mib
        )

    def _lacks(self, request: MemoryRequest) -> dict[int, int]:
        """Returns the devices that a seat would get by the ledger, with the MiB that each of them lacks."""
        memory = self._memory()
        return {index: memory[index].lack_mib(request.mib) for index in least_short(request, memory)}

    def victims(
        self,
        request: MemoryRequest,
        candidates: Collection[str],
        server_now: datetime | None,
        *,
        measured: bool,
        returning: Collection[str],
    ) -> tuple[str, ...] | None:
        """Returns the candidates to evict so that the request fits. The highest priority comes first.

        Returns None if evictions would not help. A terminating pod counts as ended before its deadline `due`. A pod
        with unknown devices is never a victim, because its eviction might free the wrong devices. If `measured` is
        True, the unused memory must also be enough for the request. When a pod in `returning` ends, its seat needs its
        memory again, so its eviction frees only its overshoot.
        """
        if self.never(request):
            return None
        room = {
            index: replace(each, measured_mib=each.measured_mib if measured else None)
            for index, each in self._memory().items()
            if self.offered[index] >= request.mib
        }
        potential = []
        for pod in self.pods.values():
            used = {index: self._used_mib(pod, index) for index in self.places[pod.uid]}
            mib, stays = (0, pod.request.mib) if pod.uid in returning else (pod.request.mib, 0)
            if pod.is_going(server_now):
                room |= {index: room[index].less(-mib, -used[index]) for index in used if index in room}
            elif pod.uid in candidates and pod.is_placed:
                frees = {index: max(each - stays, 0) for index, each in used.items()}
                potential.append(PotentialVictim(uid=pod.uid, priority=pod.priority, mib=mib, measured_mib=frees))
        return lowest_victims(request, room, potential)

    def by_priority(self, uids: Iterable[str]) -> tuple[str, ...]:
        """Returns these pods in kube-scheduler's order of victims, with the highest priority first."""
        known: dict[str, PodInfo | PodWithoutGpu] = {**self.pods_without_gpu, **self.pods}
        priorities = {uid: pod.priority for uid, pod in known.items()}
        return tuple(sorted(uids, key=lambda uid: (-priorities.get(uid, 0), uid)))

    def _used_mib(self, pod: PodInfo, index: int) -> int:
        """Returns the measured MiB of the device that the pod uses. If the reading is missing or incomplete, returns
        the request of the pod.
        """
        (uuid,) = self.uuids((index,))
        if self.reading is None or index not in self.reading.unused or uuid in self.reading.unknown:
            return pod.request.mib
        return self.reading.used_mib(pod.uid, uuid)

    def _memory(self) -> dict[int, DeviceMemory]:
        unused = self.reading.unused if self.reading else {}
        floor_mib = self.inventory.floor_mib if self.inventory else 0
        return {
            index: DeviceMemory(room_mib=mib, measured_mib=unused.get(index), floor_mib=floor_mib)
            for index, mib in self.room.items()
        }

    def never(self, request: MemoryRequest) -> str | None:
        """Returns the reason why the request would be too large even for the empty node, or None."""
        if self.inventory is None:
            return "has no GPU memory to share that is known"
        if self.inventory.unusable:
            return self.inventory.unusable
        if len(self.offered) < request.count:
            return f"has {len(self.offered)} of {request.count} GPUs"
        return None if has_room(request, self.offered) else _shortage(request, self.offered, "to share")

    def not_now(self, request: MemoryRequest) -> str:
        """Returns the reason why the request does not fit now. The caller has checked that the request would fit on the
        node without pods.
        """
        if has_room(request, self.room):
            why = f", {REFUSED_AS_MEASURED}"
        else:
            why = f", {REFUSED_AS_KEPT}" if has_room(request, self.free) else ""
        return _shortage(request, self.measured_room, "free") + why


def has_room(request: MemoryRequest, room: Mapping[int, int]) -> bool:
    return sum(mib >= request.mib for mib in room.values()) >= request.count


def _shortage(request: MemoryRequest, room: Mapping[int, int], what: str) -> str:
    """Returns a reason that names the memory of the node's largest GPU, so that the pod's author can request less."""
    most = max(room.values())
    if request.count == 1:
        return f"its largest GPU has {most} MiB {what}, not {request.mib}"
    fitting = sum(mib >= request.mib for mib in room.values())
    return f"has {fitting} of {request.count} GPUs with {request.mib} MiB {what}, the largest has {most}"


def _deduct(left: dict[int, int], mib: int, indices: Sequence[int]) -> None:
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
