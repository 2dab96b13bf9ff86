"""Evict a target: by the Eviction API, which honours PodDisruptionBudgets; a queued Job by Kueue."""

from dataclasses import dataclass
from enum import StrEnum

from agents.kube.client import Api, ApiError, Object
from agents.watchdog.pods import GpuPod
from agents.watchdog.types import Target
from tenancy.names import KUEUE_API

_TRIES = 3  # of a write that meets somebody else's


class EvictionOutcome(StrEnum):
    """What became of a target."""

    EVICTED = "evicted"
    DELETED = "deleted"
    DEACTIVATED = "deactivated"
    BLOCKED = "blocked"  # by a PodDisruptionBudget
    REFUSED = "refused"  # by the API, for any other reason
    UNANSWERED = "unanswered"  # it may have been done
    GONE = "gone"

    @property
    def may_be_done(self) -> bool:
        return self.done or self is EvictionOutcome.UNANSWERED

    @property
    def done(self) -> bool:
        return self in (EvictionOutcome.EVICTED, EvictionOutcome.DELETED, EvictionOutcome.DEACTIVATED)


@dataclass(frozen=True)
class EvictionResult:
    """What became of a target, and in the API's words why."""

    outcome: EvictionOutcome
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a pod goes: with at most so many seconds of grace; `delete_blocked`: also where a PodDisruptionBudget refuses
    its eviction."""

    grace_seconds: int
    delete_blocked: bool


def recycle(api: Api, target: Target, manner: Manner) -> EvictionResult:
    """Each pod only under the uid that was decided on. An error of the API is a result: it is this target's alone.

    A queued Job is deactivated: Kueue then suspends it, deletes its pods and gives its quota to the next. Its pods
    alone would come back within the same quota, or fail the Job. Pods that terminate already come back no more.
    """
    try:
        if target.first.stops_with_its_job and _deactivate(api, target.first):
            return EvictionResult(EvictionOutcome.DEACTIVATED)
    except ApiError as error:
        return _failed(error)
    results = [_evict(api, pod, manner) for pod in target.pods]
    return next((result for result in results if result.outcome.done), results[0])


def _failed(error: ApiError) -> EvictionResult:
    if error.outdated:
        return EvictionResult(EvictionOutcome.GONE, error.message)
    return EvictionResult(EvictionOutcome.UNANSWERED if error.undecided else EvictionOutcome.REFUSED, str(error))


def _deactivate(api: Api, pod: GpuPod) -> bool:
    """False where the Workload that the pod names is not its Job's: an annotation is no proof. Raises ApiError.

    Source: pkg/controller/core/workload_controller.go of Kueue, for spec.active: kueuectl stop workload does the same.
    """
    path = f"/apis/{KUEUE_API}/namespaces/{pod.namespace}/workloads/{pod.queued_as}"
    for _ in range(_TRIES):
        try:
            found = api.find(path)
            if found is None or not _same_owner(found, pod):
                return False
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            api.merge_patch(path, {"metadata": version, "spec": {"active": False}})
        except ApiError as error:
            if not error.outdated:
                raise
        else:
            return True
    raise ApiError(f"PATCH {path}", None, "Conflict", f"the Workload changed {_TRIES} times while it was read")


def _same_owner(workload: Object, pod: GpuPod) -> bool:
    owners = workload["metadata"].get("ownerReferences") or ()
    return any(pod.owner and each["uid"] == pod.owner.uid for each in owners)


def _evict(api: Api, pod: GpuPod, manner: Manner) -> EvictionResult:
    grace_seconds = min(pod.grace_seconds, manner.grace_seconds)
    try:
        api.evict(namespace=pod.namespace, pod=pod.name, uid=pod.uid, grace_seconds=grace_seconds)
    except ApiError as error:
        if not error.held_by_budget:
            return _failed(error)
        if not manner.delete_blocked:
            return EvictionResult(EvictionOutcome.BLOCKED, error.message)
        return _delete(api, pod, grace_seconds)
    return EvictionResult(EvictionOutcome.EVICTED)


def _delete(api: Api, pod: GpuPod, grace_seconds: int) -> EvictionResult:
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    try:
        api.delete(path, uid=pod.uid, grace_seconds=grace_seconds)
    except ApiError as error:
        return _failed(error)
    return EvictionResult(EvictionOutcome.DELETED)
