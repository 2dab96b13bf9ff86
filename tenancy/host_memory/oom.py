"""Computes which pod the kubelet evicts first, and the oom_score_adj by which the kernel chooses a process.

Amounts are whole MiB, or exact fractions of a MiB. This module computes with host memory, not with GPU memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from tenancy.units import PAGES_PER_MIB

Mib = int | Fraction

BEST_EFFORT_ADJ = 1000
# The lowest and the highest oom_score_adj that the kubelet gives a Burstable container.
_BURSTABLE_LEAST, _BURSTABLE_MOST = 3, 999
# The lowest oom_score_adj with which the kernel can still choose a process. The kernel never chooses a process with the
# oom_score_adj -1000.
_LOWEST_ADJ = -999


@dataclass(frozen=True, kw_only=True)
class PodState:
    """The state of a running pod at one moment.

    `resident_mib` is None if the kubelet has no statistics of the pod.
    """

    name: str
    resident_mib: Mib | None
    request_mib: Mib = 0
    priority: int = 0


def guarded_oom_score_adj(limit_mib: int, total_mib: int, victim_adj: int = BEST_EFFORT_ADJ) -> int:
    """Returns the highest oom_score_adj that protects a process.

    With the result, a process at its limit has a lower score than a victim with `victim_adj` and no memory. The result
    is at least -999, because the kernel never chooses a process with -1000. In less than 4 MiB, no oom_score_adj
    changes a score, and the result is -999.
    """
    pages = total_mib * PAGES_PER_MIB // 1000
    return max(victim_adj - limit_mib * PAGES_PER_MIB // pages - 1, _LOWEST_ADJ) if pages else _LOWEST_ADJ


def victim_oom_score_adj(request: int, memory: int) -> int:
    """Returns the lowest oom_score_adj that the kubelet may give a container of a disposable pod.

    The kubelet computes with the request of the container, which is at most the request of its pod. `request` is the
    request of the pod, and `memory` is the host memory of the node, in the same unit.
    """
    return burstable_oom_score_adj(request, memory) if request else BEST_EFFORT_ADJ


def eviction_order(states: Iterable[PodState]) -> list[list[PodState]]:
    """Returns the pods in the order in which the kubelet evicts them under memory pressure.

    The kubelet evicts one pod at a time. All pods of a group have the same rank.

    The source is rankMemoryPressure in pkg/kubelet/eviction/helpers.go. Pods without statistics come first, and pods
    above their requests come next. Among pods of the same kind, the pod with the lower priority comes first. If two
    priorities are equal, the pod with the larger excess over its request comes first. The kubelet ranks critical pods
    too, but does not evict them.
    """
    ranked = sorted(states, key=_eviction_key)
    return [list(group) for _, group in groupby(ranked, key=_eviction_key)]


def burstable_oom_score_adj(request: int, memory: int) -> int:
    """Returns the oom_score_adj that the kubelet gives a Burstable container.

    `request` and `memory` are amounts in the same unit.
    """
    return min(max(BEST_EFFORT_ADJ - 1000 * request // memory, _BURSTABLE_LEAST), _BURSTABLE_MOST)


def _eviction_key(state: PodState) -> tuple[bool, bool, int, Mib]:
    if state.resident_mib is None:
        return (False, False, state.priority, 0)
    over = state.resident_mib - state.request_mib
    return (True, over <= 0, state.priority, -over)
