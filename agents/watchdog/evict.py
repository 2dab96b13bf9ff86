"""Recycles pods with the Eviction API, and queued work with Kueue.

A tenant may create a PodDisruptionBudget that allows no eviction. Therefore the watchdog deletes a pod whose eviction a
PodDisruptionBudget has refused.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agents.kube.client import Api, ApiError
from agents.kube.events import Reference
from agents.watchdog.pods import GpuPod
from agents.watchdog.types import RecycleTarget
from agents.watchdog.workload import find_workload


class EvictionOutcome(StrEnum):
    EVICTED = "evicted"
    DEACTIVATED = "deactivated"
    DELETED = "deleted"  # A PodDisruptionBudget has refused the eviction, and the pod was deleted all the same.
    REFUSED = "refused"
    UNANSWERED = "unanswered"  # The API server did not respond, so the pods may have been recycled.
    GONE = "gone"

    @property
    def may_be_done(self) -> bool:
        return self.done or self is EvictionOutcome.UNANSWERED

    @property
    def done(self) -> bool:
        return self in (EvictionOutcome.EVICTED, EvictionOutcome.DELETED, EvictionOutcome.DEACTIVATED)


@dataclass(frozen=True)
class EvictionResult:
    """What became of the objects in `about`: pods, and after a deactivation also the Workload and its owner."""

    outcome: EvictionOutcome
    detail: str = ""
    about: tuple[Reference, ...] = ()


def may_be_done(results: Iterable[EvictionResult]) -> bool:
    return any(each.outcome.may_be_done for each in results)


def recycle(api: Api, target: RecycleTarget, longest_grace_seconds: int) -> Sequence[EvictionResult]:
    """Deactivates the target's Workload, and evicts the pods that do not belong to the Workload.

    After a deactivation, Kueue suspends the
    work or deletes its pods, and gives the quota to other work. After an eviction, the controller of queued work would
    create new pods with the same quota, or the work would fail. If the Workload is already inactive but its pods run,
    the watchdog evicts the pods.
    """
    try:
        stopped = _stop_work(api, target)
    except ApiError as error:
        return [_failed(error, target.pods)]
    done = set(stopped.about) if stopped else set()
    results = [_evict(api, pod, longest_grace_seconds) for pod in target.pods if pod.reference not in done]
    return results if stopped is None else [stopped, *results]


def _stop_work(api: Api, target: RecycleTarget) -> EvictionResult | None:
    """Deactivates the Workload of queued pods, or returns None if no pod belongs to an active Workload.

    Raises ApiError.
    """
    if not target.first.stops_with_its_work:
        return None
    workload = find_workload(api, target.tenant, target.first.queued_as)
    if workload is None or not workload.active:
        return None
    owned = [pod.reference for pod in target.pods if workload.owns(api, pod)]
    if not owned:
        return None
    workload.deactivate(api)
    return EvictionResult(EvictionOutcome.DEACTIVATED, about=(*workload.references, *owned))


def _evict(api: Api, pod: GpuPod, longest_grace_seconds: int) -> EvictionResult:
    grace_seconds = min(pod.grace_seconds, longest_grace_seconds)
    outcome, detail = EvictionOutcome.EVICTED, ""
    try:
        try:
            api.evict(namespace=pod.namespace, pod=pod.name, uid=pod.uid, grace_seconds=grace_seconds)
        except ApiError as error:
            if not error.held_by_budget:
                raise
            outcome, detail = EvictionOutcome.DELETED, error.message
            api.delete_pod(namespace=pod.namespace, pod=pod.name, uid=pod.uid, grace_seconds=grace_seconds)
    except ApiError as error:
        return _failed(error, [pod])
    return EvictionResult(outcome, detail, (pod.reference,))


def _failed(error: ApiError, pods: Iterable[GpuPod]) -> EvictionResult:
    about = tuple(pod.reference for pod in pods)
    if error.outdated:
        return EvictionResult(EvictionOutcome.GONE, error.message, about)
    return EvictionResult(EvictionOutcome.UNANSWERED if error.undecided else EvictionOutcome.REFUSED, str(error), about)
