"""Chooses the pods to evict so that a request fits on a node's devices, the lowest priority first. Units: MiB.

kube-scheduler's own preemption compares only the total gpumem of the node. After kube-scheduler's victims have ended,
each single device may still have too little free memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import DeviceMemory


@dataclass(frozen=True, kw_only=True)
class PotentialVictim:
    """A pod that the extender may evict. Its eviction frees `mib` by the ledger on each of its devices, and
    `measured_mib` by device index as measured.
    """

    uid: str
    priority: int
    mib: int
    measured_mib: Mapping[int, int] = field(hash=False)


def lowest_victims(
    request: MemoryRequest, room: Mapping[int, DeviceMemory], candidates: Sequence[PotentialVictim]
) -> tuple[str, ...] | None:
    """Returns the UIDs of the pods to evict, with the highest priority first. Returns None if evictions would not help.

    `room` has the devices that are large enough for the request. On each device, pods with the lowest priority are
    evicted first, and among them the largest. The function prefers the devices whose evicted pods have the lowest
    priorities.
    """
    plans = []
    for index, memory in room.items():
        leaving = _clear(request, index, memory, [each for each in candidates if index in each.measured_mib])
        if leaving is not None:
            burden = sorted((each.priority for each in leaving), reverse=True), sum(each.mib for each in leaving)
            plans.append((burden, index, leaving))
    if len(plans) < request.count:
        return None
    easiest = sorted(plans, key=lambda plan: plan[:2])[: request.count]
    chosen = {each.uid: each for _, _, leaving in easiest for each in leaving}
    for each in sorted(chosen.values(), key=lambda each: (-each.priority, each.mib, each.uid)):
        others = [other for other in chosen.values() if other is not each]
        if sum(_suffices(request, index, memory, others) for index, memory in room.items()) >= request.count:
            del chosen[each.uid]  # the others free enough without it
    return tuple(sorted(chosen, key=lambda uid: (-chosen[uid].priority, uid)))


def _clear(
    request: MemoryRequest, index: int, memory: DeviceMemory, candidates: Sequence[PotentialVictim]
) -> list[PotentialVictim] | None:
    """Returns the candidates to evict from one device, or None if all of them would not free enough memory."""
    leaving: list[PotentialVictim] = []
    for each in sorted(candidates, key=lambda each: (each.priority, -each.mib, each.uid)):
        if _suffices(request, index, memory, leaving):
            break
        leaving.append(each)
    return leaving if _suffices(request, index, memory, leaving) else None


def _suffices(request: MemoryRequest, index: int, memory: DeviceMemory, leaving: Iterable[PotentialVictim]) -> bool:
    for each in leaving:
        if index in each.measured_mib:
            memory = memory.less(-each.mib, -each.measured_mib[index])
    return memory.room_mib >= request.mib and not memory.lack_mib(request.mib)
