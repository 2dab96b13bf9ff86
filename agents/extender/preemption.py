"""Chooses the pods to evict so that a request fits on a node's devices. Units: MiB.

kube-scheduler's own preemption compares only the total gpumem of the node. After kube-scheduler's victims have ended,
each single device may still have too little free memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tenancy.devices.allocate import MemoryRequest


@dataclass(frozen=True, kw_only=True)
class PotentialVictim:
    """A pod that the extender may evict.

    `mib` is the pod's request on each device, and `used_mib` is the pod's measured use by device index. If `seated` is
    True, the ledger has a seat for the pod. After the eviction of a pod with a seat, the controller creates a new pod.
    The controller's new pod allocates as much memory as it requests.
    """

    uid: str
    priority: int
    mib: int
    used_mib: Mapping[int, int] = field(hash=False)
    seated: bool = False

    def frees_mib(self, index: int) -> int:
        """Returns the measured MiB of the device that the eviction of the pod frees for other pods."""
        used_mib = self.used_mib[index]
        return max(used_mib - self.mib, 0) if self.seated else used_mib


@dataclass(frozen=True)
class Room:
    """The free MiB of a device. `mib` is the memory that is free by the ledger.

    `spare_mib` is the measured free memory minus the floor, or None if readings do not matter.
    """

    mib: int
    spare_mib: int | None = None

    def more(self, mib: int, used_mib: int) -> "Room":
        """Returns the free MiB after a pod with this request and this measured use has ended."""
        return Room(self.mib + mib, None if self.spare_mib is None else self.spare_mib + used_mib)

    def lacks_mib(self, request: MemoryRequest) -> tuple[int, int]:
        """Returns the MiB that the request lacks on the device, by the ledger and by the reading.

        If the request fits, the missing MiB by the ledger and by the reading are at most 0.
        """
        return request.mib - self.mib, 0 if self.spare_mib is None else request.mib - self.spare_mib


def lowest_victims(
    request: MemoryRequest, room: Mapping[int, Room], candidates: Sequence[PotentialVictim]
) -> tuple[str, ...] | None:
    """Returns the UIDs of the pods to evict, with the highest priority first. Returns None if evictions would not help.

    `room` has the devices that are large enough for the request. On each device, pods with the lowest priority are
    evicted first, and among them the largest. If the measured free memory is still too small after the evictions, more
    pods are evicted. The function prefers the devices whose evicted pods have the lowest priorities. At the end, the
    function removes unnecessary pods from the result.
    """
    plans = []
    for index, left in room.items():
        leaving = _clear_both(request, index, left, [each for each in candidates if index in each.used_mib])
        if leaving is not None:
            plans.append((_burden(leaving), index, leaving))
    if len(plans) < request.count:
        return None
    easiest = sorted(plans, key=lambda plan: plan[:2])[: request.count]
    chosen = {each.uid: each for _, _, leaving in easiest for each in leaving}
    for each in sorted(chosen.values(), key=_last_first):
        others = [other for other in chosen.values() if other is not each]
        if sum(_suffices(request, index, left, others) for index, left in room.items()) >= request.count:
            del chosen[each.uid]
    return tuple(sorted(chosen, key=lambda uid: (-chosen[uid].priority, uid)))


def _clear_both(
    request: MemoryRequest, index: int, left: Room, candidates: Sequence[PotentialVictim]
) -> Sequence[PotentialVictim] | None:
    """Returns the candidates to evict from one device. The first candidates in the result free enough memory by the
    ledger. The other candidates in the result make the measured free memory large enough too.
    """
    leaving = _clear(left.lacks_mib(request)[0], candidates)
    if leaving is None:
        return None
    for each in leaving:
        left = left.more(each.mib, each.used_mib[index])
    staying = {each.uid: each for each in candidates if each not in leaving}
    users = [replace(each, mib=each.frees_mib(index)) for each in staying.values()]
    also = _clear(left.lacks_mib(request)[1], users)
    return None if also is None else [*leaving, *(staying[each.uid] for each in also)]


def _clear(need_mib: int, candidates: Sequence[PotentialVictim]) -> Sequence[PotentialVictim] | None:
    """Returns the candidates to evict from one device so that `need_mib` more MiB are free."""
    chosen: list[PotentialVictim] = []
    for each in sorted(candidates, key=lambda each: (each.priority, -each.mib, each.uid)):
        if need_mib > 0 and each.mib > 0:
            chosen.append(each)
            need_mib -= each.mib
    if need_mib > 0:
        return None
    for each in sorted(chosen, key=_last_first):
        if need_mib + each.mib <= 0:
            chosen.remove(each)
            need_mib += each.mib
    return chosen


def _last_first(each: PotentialVictim) -> tuple[int, int, str]:
    """Returns the order in which unnecessary victims are spared."""
    return -each.priority, each.mib, each.uid


def _burden(leaving: Sequence[PotentialVictim]) -> tuple[list[int], int]:
    return sorted((each.priority for each in leaving), reverse=True), sum(each.mib for each in leaving)


def _suffices(request: MemoryRequest, index: int, left: Room, leaving: Sequence[PotentialVictim]) -> bool:
    has_room = left.mib >= request.mib
    for each in leaving:
        if index in each.used_mib:
            left = left.more(each.mib, each.frees_mib(index) if has_room else each.used_mib[index])
    return max(left.lacks_mib(request)) <= 0
