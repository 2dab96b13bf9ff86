"""Chooses the pods to evict so that a request fits on a node's devices. Units: MiB.

kube-scheduler's own preemption compares only the total gpumem of the node. After kube-scheduler's victims have ended,
each single device may still have too little free memory.
"""

from collections.abc import Iterable, Mapping, Sequence
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


@dataclass(frozen=True)
class Disruptions:
    """The disruptions that PodDisruptionBudgets allow.

    `used` maps a pod's UID to the keys of the PodDisruptionBudgets that count the pod's eviction. `allowed` maps each
    PodDisruptionBudget to the number of allowed disruptions.
    """

    used: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    allowed: Mapping[str, int] = field(default_factory=dict)

    def after(self, uids: Iterable[str]) -> "Disruptions":
        """Returns the disruptions that are still allowed after the evictions of these pods."""
        if not self.used:
            return self
        left = {**self.allowed}
        for uid in uids:
            for key in self.used.get(uid, ()):
                left[key] -= 1
        return Disruptions(self.used, left)

    def violates(self, uid: str) -> bool:
        """Returns True if the eviction of the pod would violate a PodDisruptionBudget."""
        return any(self.allowed[key] <= 0 for key in self.used.get(uid, ()))

    def violations(self, uids: Iterable[str]) -> int:
        """Returns how many of these pods violate a PodDisruptionBudget when they are evicted in this order.

        Source: filterPodsWithPDBViolation in pkg/scheduler/framework/plugins/defaultpreemption. An empty selector
        selects every pod, as in the Eviction API and unlike in the source.
        """
        count, left = 0, self
        for uid in uids:
            count += left.violates(uid)
            left = left.after((uid,))
        return count


UNLIMITED = Disruptions()


def fewest_victims(
    request: MemoryRequest,
    room: Mapping[int, Room],
    candidates: Sequence[PotentialVictim],
    disruptions: Disruptions = UNLIMITED,
) -> tuple[str, ...] | None:
    """Returns the UIDs of the pods to evict, with the highest priority first. Returns None if evictions would not help.

    `room` has the devices that are large enough for the request. On each device, the evictions violate as few
    PodDisruptionBudgets as possible. Among the choices with the fewest violations, as few pods as possible are evicted.
    Among choices of equally many pods, the pods with the lowest priorities are evicted; with PodDisruptionBudgets, a
    choice with lower priorities can be missed. If the measured free memory is still too small after the evictions, more
    pods are evicted.

    For a request for several devices, the function prefers the devices with the fewest violations. Among devices with
    equally many violations, the function prefers those with the fewest evicted pods, and then those with the lowest
    priorities. At the end, the function removes unnecessary pods from the result.
    """
    plans = []
    for index, left in room.items():
        there = [each for each in candidates if index in each.used_mib]
        leaving = _clear_both(request, index, left, there, disruptions)
        if leaving is not None:
            plans.append((_burden(leaving, disruptions), index, leaving))
    if len(plans) < request.count:
        return None
    easiest = sorted(plans, key=lambda plan: plan[:2])[: request.count]
    chosen = {each.uid: each for _, _, leaving in easiest for each in leaving}
    for each in sorted(chosen.values(), key=lambda each: (-each.priority, each.mib, each.uid)):
        others = [other for other in chosen.values() if other is not each]
        if sum(_suffices(request, index, left, others) for index, left in room.items()) >= request.count:
            del chosen[each.uid]
    return tuple(sorted(chosen, key=lambda uid: (-chosen[uid].priority, uid)))


def _clear_both(
    request: MemoryRequest,
    index: int,
    left: Room,
    candidates: Sequence[PotentialVictim],
    disruptions: Disruptions,
) -> Sequence[PotentialVictim] | None:
    """Returns the candidates to evict from one device. The first candidates in the result free enough memory by the
    ledger. The other candidates in the result make the measured free memory large enough too.
    """
    leaving = _clear(left.lacks_mib(request)[0], candidates, disruptions)
    if leaving is None:
        return None
    for each in leaving:
        left = left.more(each.mib, each.used_mib[index])
    staying = {each.uid: each for each in candidates if each not in leaving}
    users = [replace(each, mib=each.frees_mib(index)) for each in staying.values()]
    also = _clear(left.lacks_mib(request)[1], users, disruptions.after(each.uid for each in leaving))
    return None if also is None else [*leaving, *(staying[each.uid] for each in also)]


def _clear(
    need_mib: int, candidates: Sequence[PotentialVictim], disruptions: Disruptions
) -> Sequence[PotentialVictim] | None:
    """Returns the candidates to evict from one device so that `need_mib` more MiB are free."""
    if sum(each.mib for each in candidates) < need_mib:
        return None
    everyone = range(len(candidates) + 1)
    for violations in everyone:
        limits = _Limits(disruptions, violations)
        count = next((count for count in everyone if limits.most_mib(count, candidates) >= need_mib), None)
        chosen = None if count is None else _choose(need_mib, count, candidates, limits)
        if chosen is not None:
            return chosen
    return None


@dataclass(frozen=True)
class _Limits:
    """The limits on a choice of pods to evict. The evictions may violate PodDisruptionBudgets for at most `violations`
    pods."""

    disruptions: Disruptions
    violations: int

    def most_mib(self, count: int, candidates: Iterable[PotentialVictim]) -> int:
        """Returns the largest number of MiB that `count` candidates free within these limits, or -1 if no choice is
        possible.

        The result is exact if each pod has at most one PodDisruptionBudget. Otherwise, the result may be smaller than
        the exact one.
        """
        if self.violations < 0:
            return -1
        allowed, violating, left = [], [], self.disruptions
        for each in sorted(candidates, key=lambda each: each.mib, reverse=True):
            if left.violates(each.uid):
                violating.append(each.mib)
            else:
                allowed.append(each.mib)
                left = left.after((each.uid,))
        most = min(self.violations, count, len(violating))
        return max(sum(violating[:number]) + sum(allowed[: count - number]) for number in range(most + 1))

    def after(self, uid: str) -> "_Limits":
        return _Limits(self.disruptions.after((uid,)), self.violations - self.disruptions.violates(uid))


def _choose(
    need_mib: int, count: int, candidates: Sequence[PotentialVictim], limits: _Limits
) -> Sequence[PotentialVictim] | None:
    """Returns `count` candidates with the lowest priorities that free `need_mib` within the limits.

    Returns None if the function finds no choice. If a pod has several PodDisruptionBudgets, the function can miss a
    possible choice.
    """
    chosen: list[PotentialVictim] = []
    while count:
        left = [each for each in candidates if each not in chosen]
        pick = _next_pick(need_mib, count, left, limits)
        if pick is None:
            return None
        chosen.append(pick)
        limits = limits.after(pick.uid)
        need_mib -= pick.mib
        count -= 1
    return chosen


def _next_pick(need_mib: int, count: int, left: Sequence[PotentialVictim], limits: _Limits) -> PotentialVictim | None:
    for highest in sorted({each.priority for each in left}):
        low = [each for each in left if each.priority <= highest]
        if limits.most_mib(count, low) < need_mib:
            continue
        # The largest candidates come first. The last candidate is the smallest candidate that is large enough.
        sizes = sorted((each for each in low if each.priority == highest), key=lambda each: (each.mib, each.uid))
        for pick in reversed(sizes) if count > 1 else sizes:
            others = [each for each in low if each is not pick]
            if limits.after(pick.uid).most_mib(count - 1, others) >= max(need_mib - pick.mib, 0):
                return pick
    return None


def _burden(leaving: Sequence[PotentialVictim], disruptions: Disruptions) -> tuple[int, int, list[int], int]:
    priorities = sorted((each.priority for each in leaving), reverse=True)
    violations = disruptions.violations(each.uid for each in leaving)
    return violations, len(leaving), priorities, sum(each.mib for each in leaving)


def _suffices(request: MemoryRequest, index: int, left: Room, leaving: Sequence[PotentialVictim]) -> bool:
    has_room = left.mib >= request.mib
    for each in leaving:
        if index in each.used_mib:
            left = left.more(each.mib, each.frees_mib(index) if has_room else each.used_mib[index])
    return max(left.lacks_mib(request)) <= 0
