"""Checks the promises of a memory pool in every state that the memory pool declares, and measures each violation.

The guard gives each protected process an oom_score_adj with which the process has a lower score at its limit than a
disposable process without memory. Such a value exists for every limit up to the node's allocatable memory. So the
kernel needs no check here beyond the policy rule `memory-limits`. The kubelet chooses a pod more often if the pod uses
more memory. Its check therefore uses the worst case, in which the disposable pod uses its least memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, product

from tenancy.host_memory.oom import PodState, eviction_order
from tenancy.host_memory.pool import Disposable, HostMemoryPool, Workload


class UseLevel(StrEnum):
    """The amount of memory that a workload uses: one of three declared levels."""

    STEADY = "steady state"
    PEAK = "peak"
    LIMIT = "limit"


@dataclass(frozen=True, kw_only=True)
class Outranked:
    """A protected workload that the kubelet may evict before a pod of `disposable`."""

    workload: Workload
    disposable: Disposable
    moment: UseLevel


@dataclass(frozen=True, kw_only=True)
class Burst:
    """A group of workloads that are at their peaks at the same time.

    `short_mib` is the memory that is still missing after all victims have ended.
    """

    workloads: tuple[Workload, ...]
    total_mib: int
    short_mib: int


def requested_mib(pool: HostMemoryPool) -> int:
    """Returns the MiB that all pods of the memory pool request together. The sum includes the largest declared number
    of disposable pods.
    """
    victims = sum(disposable.request_mib * disposable.pods_most for disposable in pool.disposable)
    return victims + sum(workload.request_mib for workload in pool.workloads)


def victims(pool: HostMemoryPool) -> list[Disposable]:
    """Returns the disposable workloads that always run and always use more than they request."""
    return [d for d in pool.disposable if d.pods_least and d.request_mib < d.resident_least_mib]


def outranked(pool: HostMemoryPool, priorities: Mapping[str, int]) -> Iterator[Outranked]:
    """Yields each workload that the kubelet may evict before a disposable pod, once for each kind of disposable pods.

    Raises KeyError if `priorities` lacks a PriorityClass.
    """
    for disposable, workload in product(pool.disposable, pool.workloads if victims(pool) else ()):
        for moment in UseLevel:
            if not _goes_first(disposable, workload, moment, priorities):
                yield Outranked(workload=workload, disposable=disposable, moment=moment)
                break


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


def _burst(pool: HostMemoryPool, workloads: Sequence[Workload]) -> Burst:
    total_mib = pool.steady_mib + sum(workload.burst_mib for workload in workloads)
    return Burst(workloads=tuple(workloads), total_mib=total_mib, short_mib=max(total_mib - pool.pods_mib, 0))


def _held_mib(workload: Workload, moment: UseLevel) -> int:
    match moment:
        case UseLevel.STEADY:
            return workload.steady_mib
        case UseLevel.PEAK:
            return workload.peak_mib
        case UseLevel.LIMIT:
            return workload.limit_mib


def _goes_first(disposable: Disposable, workload: Workload, moment: UseLevel, priorities: Mapping[str, int]) -> bool:
    """Returns True if the kubelet evicts the disposable pod before the workload.

    The comparison assumes that the disposable pod uses the least memory that its declaration allows.
    """
    states = [
        PodState(
            name=disposable.name,
            resident_mib=disposable.resident_least_mib,
            request_mib=disposable.request_mib,
            priority=priorities[disposable.priority],
        ),
        PodState(
            name=workload.name,
            resident_mib=_held_mib(workload, moment),
            request_mib=workload.request_mib,
            priority=priorities[workload.priority],
        ),
    ]
    return eviction_order(states)[0] == states[:1]
