"""Checks the promises of a memory pool in every state that the memory pool declares, and measures each violation.

The kernel and the kubelet choose a pod more often if it uses more memory. Each check uses the worst case: the victim
uses its least memory, and the workload uses its most memory. A result for the worst case is also true for all other
cases.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

from tenancy.host_memory.oom import PodState, badness_pages, eviction_order
from tenancy.host_memory.pool import Disposable, HostMemoryPool, Workload
from tenancy.units import PAGES_PER_MIB

# The seconds between the kubelet's choice of a pod and the kill (immediateEvictionGracePeriodSeconds in
# pkg/kubelet/eviction/eviction_manager.go).
KILL_SECONDS = 1
# The seconds between two checks of memory by the kubelet (monitoringPeriod in pkg/kubelet/eviction).
EVICTION_INTERVAL_SECONDS = 10


class UseLevel(StrEnum):
    """The amount of memory that a workload uses: one of three declared levels."""

    STEADY = "steady state"
    PEAK = "peak"
    LIMIT = "limit"


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """A protected workload that the kernel kills before all disposable pods have ended.

    `held_mib` is the memory that the workload uses at this moment. `excess_mib` is the workload's score minus the
    highest score of a victim, in MiB.
    """

    workload: Workload
    moment: UseLevel
    held_mib: int
    excess_mib: int


@dataclass(frozen=True, kw_only=True)
class Remedies:
    """Three possible changes for a workload that the kernel would kill first.

    Each change alone prevents that the kernel chooses the workload at its peak. A change is None if no value of its key
    prevents the kill.

    The changes are a higher `request_mib` of the workload, a higher `resident_least_mib` of a victim, or a higher
    eviction threshold. With the eviction threshold `threshold_mib`, the kubelet evicts a pod before the kernel kills
    one.
    """

    request_mib: int | None
    resident_least_mib: int | None
    threshold_mib: int


@dataclass(frozen=True, kw_only=True)
class Outranked:
    """A protected workload that the kubelet may evict before all disposable pods have ended."""

    workload: Workload
    moment: UseLevel


@dataclass(frozen=True, kw_only=True)
class Burst:
    """A group of workloads that are at their peaks at the same time.

    `short_mib` is the memory that is still missing after all victims have ended.
    """

    workloads: tuple[Workload, ...]
    total_mib: int
    short_mib: int
    victims_killed: int


def requested_mib(pool: HostMemoryPool) -> int:
    """Returns the MiB that all pods of the memory pool request together. The sum includes the largest declared number
    of disposable pods.
    """
    victims = sum(disposable.request_mib * disposable.pods_most for disposable in pool.disposable)
    return victims + sum(workload.request_mib for workload in pool.workloads)


def victims(pool: HostMemoryPool) -> list[Disposable]:
    """Returns the disposable workloads that always run and always use more than they request."""
    return [d for d in pool.disposable if d.pods_least and d.request_mib < d.resident_least_mib]


def exposures(pool: HostMemoryPool) -> list[Exposure]:
    """Returns the workloads that the kernel may kill before all disposable pods have ended.

    For each workload, names the lowest level of use at which the kernel may kill the workload first. Returns an empty
    list if the memory pool has no disposable pods.

    Without the guard, a workload that uses more than its declared peak is not protected. The code therefore checks the
    level "limit" only in a memory pool with the guard.
    """
    moments = tuple(UseLevel) if pool.guard else (UseLevel.STEADY, UseLevel.PEAK)
    found = []
    for workload in pool.workloads if victims(pool) else ():
        for moment in moments:
            excess_mib = max(_excess_mib(pool, workload, moment, total_mib) for total_mib in pool.totals_mib)
            if excess_mib >= 0:
                held_mib = _held_mib(workload, moment)
                found.append(Exposure(workload=workload, moment=moment, held_mib=held_mib, excess_mib=excess_mib))
                break
    return found


def remedies(pool: HostMemoryPool, workload: Workload) -> Remedies:
    """Returns the changes that make the workload safe at its peak without the guard.

    `request_mib` is None if the memory pool has too little memory for the higher request.
    """
    room_mib = pool.allocatable_mib - requested_mib(pool)

    def with_request(request_mib: int) -> HostMemoryPool:
        return _with(pool, workload, replace(workload, request_mib=request_mib))

    def with_victim(resident_mib: int) -> HostMemoryPool:
        grown = [
            replace(d, resident_least_mib=resident_mib, resident_most_mib=max(resident_mib, d.resident_most_mib))
            for d in victims(pool)
        ]
        return replace(pool, disposable=tuple(grown))

    return Remedies(
        request_mib=_least(
            lambda mib: _is_safe(with_request(mib), workload), min(workload.limit_mib, workload.request_mib + room_mib)
        ),
        resident_least_mib=_least(lambda mib: _is_safe(with_victim(mib), workload), pool.allocatable_mib),
        threshold_mib=needed_threshold_mib(pool),
    )


def outranked(pool: HostMemoryPool, priorities: Mapping[str, int]) -> list[Outranked]:
    """Returns the workloads that the kubelet may evict before all disposable pods have ended.

    Raises KeyError if `priorities` lacks a PriorityClass.
    """
    found = []
    for workload in pool.workloads if victims(pool) else ():
        for moment in UseLevel:
            if not any(_goes_first(victim, workload, moment, priorities) for victim in victims(pool)):
                found.append(Outranked(workload=workload, moment=moment))
                break
    return found


def bursts(pool: HostMemoryPool) -> list[Burst]:
    """Returns the peak of each workload alone, and the joint peak of each pair of workloads.

    The largest peak comes first.
    """
    peaking = [workload for workload in pool.workloads if workload.burst_mib]
    groups = [*combinations(peaking, 1), *combinations(peaking, 2)]
    return sorted((_burst(pool, group) for group in groups), key=lambda burst: -burst.total_mib)


def all_at_peak(pool: HostMemoryPool) -> Burst:
    """Returns the case in which all workloads are at their peaks at the same time.

    A memory pool assumes that the workloads are never all at their peaks at the same time.
    """
    return _burst(pool, pool.workloads)


def needed_threshold_mib(pool: HostMemoryPool) -> int:
    """Returns the eviction threshold with which the kubelet frees memory before the memory runs out.

    The threshold is enough if at most two workloads grow at the same time, at most as fast as declared.

    The kubelet kills one pod in each interval. The growth before each kill must be at most the threshold plus the
    memory that earlier kills have freed. A threshold as large as the whole growth is always enough, because this memory
    is free at the start.
    """
    return max((_threshold_mib(pool, burst.workloads) for burst in bursts(pool)), default=0)


def _threshold_mib(pool: HostMemoryPool, growing: Sequence[Workload]) -> int:
    rate = sum(workload.growth_mib_per_second for workload in growing)
    growth_mib = sum(workload.burst_mib for workload in growing)
    first = rate * (EVICTION_INTERVAL_SECONDS + KILL_SECONDS)
    smallest_mib = min((d.resident_least_mib for d in victims(pool)), default=0)
    kills = max(_burst(pool, growing).victims_killed, 1)
    last = first + (kills - 1) * (rate * EVICTION_INTERVAL_SECONDS - smallest_mib)
    return min(max(first, last), growth_mib)


def _burst(pool: HostMemoryPool, workloads: Sequence[Workload]) -> Burst:
    total_mib = pool.steady_mib + sum(workload.burst_mib for workload in workloads)
    over_mib = total_mib - pool.pods_mib
    held_mib = sum(d.pods_most * d.resident_most_mib for d in pool.disposable)
    return Burst(
        workloads=tuple(workloads),
        total_mib=total_mib,
        short_mib=max(over_mib, 0),
        victims_killed=_killed(pool, held_mib + over_mib),
    )


def _killed(pool: HostMemoryPool, freed_mib: int) -> int:
    """Returns the number of victims that must end to free `freed_mib`.

    The computation assumes that the smallest victims end first. The computation assumes that each victim uses the most
    memory that it may use.
    """
    killed = 0
    for disposable in sorted(pool.disposable, key=lambda d: d.resident_most_mib):
        if freed_mib <= 0:
            break
        here = min(math.ceil(freed_mib / disposable.resident_most_mib), disposable.pods_most)
        killed += here
        freed_mib -= here * disposable.resident_most_mib
    return killed


def _excess_mib(pool: HostMemoryPool, workload: Workload, moment: UseLevel, total_mib: int) -> int:
    """Returns how far the OOM score of the workload is above the highest OOM score of a victim, in MiB and rounded up.

    The result is negative if a victim has a higher OOM score than the workload.
    """
    own = badness_pages(_held_mib(workload, moment), pool.oom_score_adj(workload), total_mib)
    best = max(badness_pages(d.resident_least_mib, pool.victim_adj(d), total_mib) for d in victims(pool))
    return math.ceil((own - best) / PAGES_PER_MIB)


def _is_safe(pool: HostMemoryPool, workload: Workload) -> bool:
    return all(exposure.workload.name != workload.name for exposure in exposures(replace(pool, guard=False)))


def _with(pool: HostMemoryPool, workload: Workload, changed: Workload) -> HostMemoryPool:
    return replace(pool, workloads=tuple(changed if w == workload else w for w in pool.workloads))


def _least(holds: Callable[[int], bool], most: int) -> int | None:
    """Returns the smallest number from 1 to `most` for which `holds` is true.

    If `holds` is true for a number, it must be true for all larger numbers.
    """
    if most < 1 or not holds(most):
        return None
    return 1 + bisect_left(range(1, most), True, key=holds)


def _held_mib(workload: Workload, moment: UseLevel) -> int:
    match moment:
        case UseLevel.STEADY:
            return workload.steady_mib
        case UseLevel.PEAK:
            return workload.peak_mib
        case UseLevel.LIMIT:
            return workload.limit_mib


def _goes_first(victim: Disposable, workload: Workload, moment: UseLevel, priorities: Mapping[str, int]) -> bool:
    """Returns True if the kubelet evicts the victim before the workload.

    The comparison assumes that the victim uses the least memory that its declaration allows.
    """
    states = [
        PodState(
            name=victim.name,
            resident_mib=victim.resident_least_mib,
            request_mib=victim.request_mib,
            priority=priorities[victim.priority],
        ),
        PodState(
            name=workload.name,
            resident_mib=_held_mib(workload, moment),
            request_mib=workload.request_mib,
            priority=priorities[workload.priority],
        ),
    ]
    return eviction_order(states)[0] == states[:1]
