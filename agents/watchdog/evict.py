"""Recycles pods with the Eviction API, which respects PodDisruptionBudgets. Recycles a queued Job with Kueue."""

from dataclasses import dataclass
from enum import StrEnum

from agents.kube.client import Api, ApiError, join_path
from agents.watchdog.pods import GpuPod
from agents.watchdog.types import RecycleTarget
from tenancy.names import KUEUE_API


class EvictionOutcome(StrEnum):
    EVICTED = "evicted"
    DEACTIVATED = "deactivated"
    BLOCKED = "blocked"  # A PodDisruptionBudget refused the eviction.
    REFUSED = "refused"  # The API server refused the eviction for another reason.
    UNANSWERED = "unanswered"  # There was no response, so the pods may have been recycled.
    GONE = "gone"

    @property
    def may_be_done(self) -> bool:
        return self.done or self is EvictionOutcome.UNANSWERED

    @property
    def done(self) -> bool:
        return self in (EvictionOutcome.EVICTED, EvictionOutcome.DEACTIVATED)


@dataclass(frozen=True)
class EvictionResult:
    outcome: EvictionOutcome
    detail: str = ""


def recycle(api: Api, target: RecycleTarget, longest_grace_seconds: int) -> EvictionResult:
    """Evicts the target's pods, or deactivates its queued Job. Returns the result, even after an error of the API.

    After the deactivation, Kueue suspends the Job, deletes its pods and gives its quota to another Job. After an
    eviction, the Job would instead create new pods with the same quota, or fail.
    """
    try:
        if target.first.stops_with_its_job and _deactivate(api, target.first):
            return EvictionResult(EvictionOutcome.DEACTIVATED)
    except ApiError as error:
        return _failed(error)
    results = [_evict(api, pod, longest_grace_seconds) for pod in target.pods]
    return next((result for result in results if result.outcome.done), results[0])


def _failed(error: ApiError) -> EvictionResult:
    if error.outdated:
        return EvictionResult(EvictionOutcome.GONE, error.message)
    return EvictionResult(EvictionOutcome.UNANSWERED if error.undecided else EvictionOutcome.REFUSED, str(error))


def _deactivate(api: Api, pod: GpuPod) -> bool:
    """Deactivates the Kueue Workload in the pod's annotation. Returns False if the Workload belongs to a different Job.

    Raises ApiError.

    Source: pkg/controller/core/workload_controller.go of Kueue; `kueuectl stop workload` also sets spec.active.
    """
    path = join_path(f"/apis/{KUEUE_API}/namespaces", pod.namespace, "workloads", pod.queued_as or "")
    found = api.find(path)
    owners = (found and found["metadata"].get("ownerReferences")) or ()
    if found is None or not any(pod.owner and each["uid"] == pod.owner.uid for each in owners):
        return False
    version = {"resourceVersion": found["metadata"]["resourceVersion"]}
    api.merge_patch(path, {"metadata": version, "spec": {"active": False}})
    return True


def _evict(api: Api, pod: GpuPod, longest_grace_seconds: int) -> EvictionResult:
    grace_seconds = min(pod.grace_seconds, longest_grace_seconds)
    try:
        api.evict(namespace=pod.namespace, pod=pod.name, uid=pod.uid, grace_seconds=grace_seconds)
    except ApiError as error:
        if error.held_by_budget:
            return EvictionResult(EvictionOutcome.BLOCKED, error.message)
        return _failed(error)
    return EvictionResult(EvictionOutcome.EVICTED)
