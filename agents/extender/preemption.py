"""Chooses the pods to evict so that a request fits on a node's devices. Units: MiB.

kube-scheduler's preemption counts only the node's sum of gpumem. Even after the eviction of all its victims, perhaps no
device has enough free memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tenancy.devices.allocate import MemoryRequest


@dataclass(frozen=True, kw_only=True)
class PotentialVictim:
    """A pod that may be evicted.

    `mib` is the pod's request on each device, and `used_mib` is the pod's measured use by device index. A pod with
    `seated` has a promise in the ledger. After its eviction, its controller creates a new pod, which allocates the
    request again.
    """

    uid: str
    priority: int
    mib: int
    used_mib: Mapping[int, int] = field(hash=False)
    seated: bool = False

    def frees_mib(self, index: int) -> int:
        """Returns the measured MiB of the device that are free for other pods after the pod's eviction."""
        used_mib = self.used_mib[index]
        return max(used_mib - self.mib, 0) if self.seated else used_mib


@dataclass(frozen=True)
class Room:
    """The free MiB of a device. `mib` is the memory that is free by the ledger.

    `spare_mib` is measured free memory minus the floor, or None if measurements do not count.
    """

    mib: int
    spare_mib: int | None = None

    def more(self, mib: int, used_mib: int) -> "Room":
        """Returns the free MiB after a pod with this request and this measured use has ended."""
        return Room(self.mib + mib, None if self.spare_mib is None else self.spare_mib + used_mib)

    def lacks_mib(self, request: MemoryRequest) -> tuple[int, int]:
        """Returns the MiB that the request lacks on this device, first by the ledger and then by measurement.

        Both values are at most 0 if the request fits.
        """
        return request.mib - self.mib, 0 if self.spare_mib is None else request.mib - self.spare_mib


def fewest_victims(
    request: MemoryRequest, room: Mapping[int, Room], candidates: Sequence[PotentialVictim]
) -> tuple[str, ...] | None:
    """Returns the UIDs of the pods to evict, the highest priority first. Returns None if evictions would not help.

    `room` has the devices that are large enough for the request. On each device, as few pods as possible are evicted,
    and of equally many pods those with the lowest priorities. If measured memory is still short, more pods are evicted.
    A request for several devices takes the devices with the easiest evictions. At the end, removes from the result each
    pod that need not be evicted for the request.
    """
    plans = []
    for index, left in room.items():
        leaving = _clear_both(request, index, left, [each for each in candidates if index in each.used_mib])
        if leaving is not None:
            plans.append((_burden(leaving), index, leaving))
    if len(plans) < request.count:
        return None
    easiest = sorted(plans, key=lambda plan: plan[:2])[: request.count]
    wanted = {index for _, index, _ in easiest}
    chosen = {each.uid: each for _, _, leaving in easiest for each in leaving}
    for each in sorted(chosen.values(), key=lambda each: (-each.priority, each.mib, each.uid)):
        others = [other for other in chosen.values() if other is not each]
        if all(_suffices(request, index, room[index], others) for index in wanted):
            del chosen[each.uid]
    return tuple(sorted(chosen, key=lambda uid: (-chosen[uid].priority, uid)))


def _clear_both(
    request: MemoryRequest, index: int, left: Room, candidates: Sequence[PotentialVictim]
) -> Sequence[PotentialVictim] | None:
    """Returns the candidates to evict from one device: first those for memory by the ledger, then those for measured
    memory.
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
    """Returns the candidates to evict from one device, so that `need_mib` more MiB are free."""
    count = _count(need_mib, candidates)
    if count is None:
        return None
    chosen: list[PotentialVictim] = []
    while count:
        left = [each for each in candidates if each not in chosen]
        highest = next(p for p in sorted({each.priority for each in left}) if _covers(need_mib, count, left, p))
        sizes = sorted((each for each in left if each.priority == highest), key=lambda each: (each.mib, each.uid))
        # Each chosen candidate is the largest, so that less remains to free. Only the last candidate is as small as
        # possible.
        pick = sizes[-1] if count > 1 else next(each for each in sizes if each.mib >= need_mib)
        chosen.append(pick)
        need_mib -= pick.mib
        count -= 1
    return chosen


def _count(need_mib: int, candidates: Sequence[PotentialVictim]) -> int | None:
    """Returns the smallest number of candidates that free `need_mib`, or None if all candidates together free less."""
    for count, mib in enumerate(sorted((each.mib for each in candidates), reverse=True)):
        if need_mib <= 0:
            return count
        need_mib -= mib
    return len(candidates) if need_mib <= 0 else None


def _covers(need_mib: int, count: int, candidates: Sequence[PotentialVictim], highest: int) -> bool:
    """Returns True if `count` candidates with a priority of at most `highest` can free `need_mib` MiB."""
    sizes = sorted((each.mib for each in candidates if each.priority <= highest), reverse=True)
    return sum(sizes[:count]) >= need_mib


def _burden(leaving: Sequence[PotentialVictim]) -> tuple[int, list[int], int]:
    return len(leaving), sorted((each.priority for each in leaving), reverse=True), sum(each.mib for each in leaving)


def _suffices(request: MemoryRequest, index: int, left: Room, leaving: Sequence[PotentialVictim]) -> bool:
    has_room = left.mib >= request.mib
    for each in leaving:
        if index in each.used_mib:
            left = left.more(each.mib, each.frees_mib(index) if has_room else each.used_mib[index])
    return max(left.lacks_mib(request)) <= 0
