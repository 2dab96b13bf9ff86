"""Finds the first pod to end when a node runs out of host memory, by the ranking of the kernel and of the kubelet.

Amounts are MiB, whole or exact fractions of them. Nothing here is about GPU memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from tenancy.units import PAGES_PER_MIB

Mib = int | Fraction

BEST_EFFORT_ADJ = 1000
# The kubelet gives a Burstable container a value from the first to the second.
_BURSTABLE_LEAST, _BURSTABLE_MOST = 3, 999
# The lowest value with which the kernel may still choose the process. The value -1000 excludes the process.
_LOWEST_ADJ = -999


@dataclass(frozen=True, kw_only=True)
class PodState:
    """A running pod at one moment. `resident_mib` is None if the kubelet lacks statistics for this pod."""

    name: str
    resident_mib: Mib | None
    request_mib: Mib = 0
    oom_score_adj: int = 0
    priority: int = 0


def badness_pages(resident_mib: Mib, oom_score_adj: int, total_mib: int) -> int:
    """Returns the kernel's rank of a process, in pages of 4 KiB.

    `total_mib` is the memory of the machine, or the limit of the memory cgroup that ran out.

    Source: oom_badness in mm/oom_kill.c. `resident_mib` is the process's resident memory, its swapped memory and its
    page tables. The kernel divides the total by 1000 before it multiplies.
    """
    return int(resident_mib * PAGES_PER_MIB) + oom_score_adj * _pages_per_adj(total_mib)


def guarded_oom_score_adj(limit_mib: int, total_mib: int, victim_adj: int = BEST_EFFORT_ADJ) -> int:
    """Returns the highest oom_score_adj at which a process at its limit still scores below an empty victim of
    `victim_adj`.

    Never returns -1000, which would take the process out of the kernel's choice.
    """
    limit_adj = limit_mib * PAGES_PER_MIB // _pages_per_adj(total_mib)
    return max(victim_adj - limit_adj - 1, _LOWEST_ADJ)


def eviction_order(states: Iterable[PodState]) -> list[list[PodState]]:
    """Returns the order in which the kubelet evicts under memory pressure, one pod in each round.

    Pods in one group have the same rank.

    Source: rankMemoryPressure in pkg/kubelet/eviction/helpers.go: pods without statistics first, then pods above their
    request, then the lower priority, then the larger excess. Critical pods are ranked, and then skipped.
    """
    ranked = sorted(states, key=_eviction_key)
    return [list(group) for _, group in groupby(ranked, key=_eviction_key)]


def burstable_oom_score_adj(request: int, memory: int) -> int:
    """Returns the kubelet's oom_score_adj of a Burstable container. Both amounts have the same unit."""
    return min(max(BEST_EFFORT_ADJ - 1000 * request // memory, _BURSTABLE_LEAST), _BURSTABLE_MOST)


def _pages_per_adj(total_mib: int) -> int:
    return total_mib * PAGES_PER_MIB // 1000


def _eviction_key(state: PodState) -> tuple[bool, bool, int, Mib]:
    if state.resident_mib is None:
        return (False, False, state.priority, 0)
    over = state.resident_mib - state.request_mib
    return (True, over <= 0, state.priority, -over)
