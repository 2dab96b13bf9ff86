"""Who goes first when a node runs out of host memory: the kernel's choice, and the kubelet's.

Amounts are MiB, whole or exact fractions of them: what is asked for may be in bytes. Nothing here is about GPU memory.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import groupby

from tenancy.names import NODE_CRITICAL
from tenancy.quantity import parse
from tenancy.units import PAGES_PER_MIB
from tenancy.workload import (
    Manifest,
    at,
    container_request,
    containers_of,
    containers_request,
    given,
    overhead,
    pod_level_request,
    restarts,
)

Mib = int | Fraction

BEST_EFFORT_ADJ = 1000
GUARANTEED_ADJ = -997
# A Burstable container's, at the least and at the most.
_BURSTABLE_LEAST, _BURSTABLE_MOST = 3, 999
# The least that still lets the kernel choose the process; -1000 takes it out of the choice.
_LOWEST_ADJ = -999

_MEMORY = "memory"
_COMPUTE = ("cpu", _MEMORY)  # what makes the QoS class


class QosClass(StrEnum):
    """https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/"""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, kw_only=True)
class PodState:
    """A running pod at one moment. `resident_mib` None: the kubelet has no statistics of it."""

    name: str
    resident_mib: Mib | None
    request_mib: Mib = 0
    oom_score_adj: int = 0
    priority: int = 0


def badness_pages(resident_mib: Mib, oom_score_adj: int, total_mib: int) -> int:
    """What the kernel ranks a process by, in pages of 4 KiB. `total_mib` is the memory of the machine, or the limit of
    the memory cgroup that ran out.

    Source: oom_badness in mm/oom_kill.c. `resident_mib` is what the process holds there: resident, swapped and its page
    tables. The kernel divides the total by 1000 before it multiplies.
    """
    return int(resident_mib * PAGES_PER_MIB) + oom_score_adj * _pages_per_adj(total_mib)


def kernel_victim(states: Iterable[PodState], total_mib: int) -> PodState | None:
    """The pod that the kernel kills, the one with the highest badness; None where two have it, or where there is none.

    Of two alike the kernel takes the one that it happens to look at last. A pod whose use is not known counts nothing.
    """
    scores = [(badness_pages(s.resident_mib or 0, s.oom_score_adj, total_mib), s) for s in states]
    highest = max((score for score, _ in scores), default=0)
    chosen = [state for score, state in scores if score == highest]
    return chosen[0] if len(chosen) == 1 else None


def guarded_oom_score_adj(limit_mib: int, total_mib: int, victim_adj: int = BEST_EFFORT_ADJ) -> int:
    """The highest oom_score_adj at which a process that fills its limit scores below a victim of `victim_adj` that
    holds nothing. Never the -1000 that takes a process out of the kernel's choice."""
    limit_adj = limit_mib * PAGES_PER_MIB // _pages_per_adj(total_mib)
    return max(victim_adj - limit_adj - 1, _LOWEST_ADJ)


def eviction_order(states: Iterable[PodState]) -> list[list[PodState]]:
    """The order in which the kubelet evicts under memory pressure, one pod a round; those in one group rank alike.

    Source: rankMemoryPressure in pkg/kubelet/eviction/helpers.go: without statistics first; then what uses more than it
    requests; then the lower priority; then the larger excess. Critical pods are ranked, and then passed over.
    """
    ranked = sorted(states, key=_eviction_key)
    return [list(group) for _, group in groupby(ranked, key=_eviction_key)]


def eviction_request(pod_spec: Manifest) -> Fraction:
    """The bytes that the kubelet sets a pod's use against when it ranks pods for eviction. Raises QuantityError.

    Source: GetResourceRequestQuantity in pkg/api/v1/resource/helpers.go. It is not what the scheduler counts: the
    overhead is left out where nothing else is requested, and a pod with resources of its own that say nothing of memory
    requests none, whatever its containers say.
    """
    if any(at(pod_spec, "resources", part) for part in ("requests", "limits")):
        request = pod_level_request(pod_spec, _MEMORY) or Fraction(0)
    else:
        request = containers_request(pod_spec, _MEMORY)
    return request + overhead(pod_spec, _MEMORY) if request else request


def qos_class(pod_spec: Manifest) -> QosClass:
    """The QoS class. Source: ComputePodQOS in pkg/apis/core/v1/helper/qos/qos.go. Raises QuantityError, ShapeError."""
    if pod_spec.get("resources") is not None:
        limits = {resource: _pod_limit(pod_spec, resource) for resource in _COMPUTE}
        requests = {resource: pod_level_request(pod_spec, resource) or Fraction(0) for resource in _COMPUTE}
        limited = all(limits.values())
    else:
        containers = list(containers_of(pod_spec))
        limits = {r: sum((_limit(c, r) for c in containers), Fraction(0)) for r in _COMPUTE}
        requests = {r: sum((container_request(c, r) for c in containers), Fraction(0)) for r in _COMPUTE}
        limited = all(_limit(c, r) for c in containers for r in _COMPUTE)
    if not any(limits.values()) and not any(requests.values()):
        return QosClass.BEST_EFFORT
    return QosClass.GUARANTEED if limited and limits == requests else QosClass.BURSTABLE


def oom_score_adj(pod_spec: Manifest, container: Manifest, memory_bytes: int) -> int:
    """What the kubelet gives the processes of a container on a machine of that memory.

    Source: GetContainerOOMScoreAdjust in pkg/kubelet/qos/policy.go. Raises QuantityError, ShapeError.
    """
    if pod_spec.get("priorityClassName") == NODE_CRITICAL:
        return GUARANTEED_ADJ
    qos = qos_class(pod_spec)
    if qos is not QosClass.BURSTABLE:
        return GUARANTEED_ADJ if qos is QosClass.GUARANTEED else BEST_EFFORT_ADJ
    request = _bytes(container_request(container, _MEMORY))
    if restarts(container):  # a sidecar outlives no container that it serves
        main = (_bytes(container_request(c, _MEMORY)) for c in containers_of(pod_spec, "containers"))
        request = max(request, min(main, default=0))
    request += _share_of_pod_request(pod_spec)
    return burstable_oom_score_adj(request, memory_bytes)


def burstable_oom_score_adj(request: int, memory: int) -> int:
    """What the kubelet gives a Burstable container that requests so much of the memory, both in one unit."""
    return min(max(BEST_EFFORT_ADJ - 1000 * request // memory, _BURSTABLE_LEAST), _BURSTABLE_MOST)


def _share_of_pod_request(pod_spec: Manifest) -> int:
    """Bytes that each container has of what the pod requests beyond its containers."""
    if not at(pod_spec, "resources"):
        return 0
    stated = _bytes(pod_level_request(pod_spec, _MEMORY) or Fraction(0))
    if not stated:
        return 0
    return (stated - _bytes(containers_request(pod_spec, _MEMORY))) // len(list(containers_of(pod_spec)))


def _pod_limit(pod_spec: Manifest, resource: str) -> Fraction:
    return parse(given(at(pod_spec, "resources", "limits"), resource, 0))


def _limit(container: Manifest, resource: str) -> Fraction:
    return parse(given(at(container, "resources", "limits"), resource, 0))


def _bytes(amount: Fraction) -> int:
    return math.ceil(amount)


def _pages_per_adj(total_mib: int) -> int:
    return total_mib * PAGES_PER_MIB // 1000


def _eviction_key(state: PodState) -> tuple[bool, bool, int, Mib]:
    if state.resident_mib is None:
        return (False, False, state.priority, 0)
    over = state.resident_mib - state.request_mib
    return (True, over <= 0, state.priority, -over)
