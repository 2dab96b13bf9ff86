"""Checks the promises of a memory pool in every state that the memory pool declares, and measures each violation.

The guard gives each protected process an oom_score_adj with which the process has a lower score at its limit than a
disposable process without memory. Such a value exists for every limit up to the node's allocatable memory. So the
kernel needs no check here beyond the policy rule `memory-limits`. The kubelet chooses a pod more often if the pod uses
more memory, so its check is about the worst case.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from tenancy.host_memory.oom import PodState, eviction_order
from tenancy.host_memory.pool import Disposable, HostMemoryPool, Workload


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


def outranked(pool: HostMemoryPool, priorities: Mapping[str, int]) -> Iterator[tuple[Disposable, Workload]]:
    """Yields each workload that the kubelet may evict before a disposable pod, with the kind of disposable pods.

    In the worst case, the disposable pod uses the least that its declaration allows, and the workload its limit. Raises
    KeyError if `priorities` lacks a PriorityClass.
    """
    for disposable, workload in product(pool.disposable, pool.workloads if victims(pool) else ()):
        victim, protected = (
            PodState(
                name=member.name,
                resident_mib=resident_mib,
                request_mib=member.request_mib,
                priority=priorities[member.priority],
            )
            for member, resident_mib in ((disposable, disposable.resident_least_mib), (workload, workload.limit_mib))
        )
        if eviction_order((victim, protected))[0] != [victim]:
            yield disposable, workload


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
