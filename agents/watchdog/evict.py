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
    BLOCKED = "blocked"
    GONE = "gone"

    @property
    def done(self) -> bool:
        return self in (EvictionOutcome.EVICTED, EvictionOutcome.DELETED, EvictionOutcome.DEACTIVATED)


@dataclass(frozen=True)
class EvictionResult:
    """What became of a target, and in the API's words why."""

    outcome: EvictionOutcome
    detail: str = ""


def recycle(api: Api, target: Target, *, delete_blocked: bool) -> EvictionResult:
    """Each pod only under the uid that was decided on. Raises ApiError.

    A queued Job is deactivated: Kueue then suspends it, deletes its pods and gives its quota to the next. Its pods
    alone would come back within the same quota, or fail the Job.
    """
    if target.first.queued_as and _deactivate(api, target.first):
        return EvictionResult(EvictionOutcome.DEACTIVATED)
    acts = [_evict(api, pod, delete_blocked=delete_blocked) for pod in target.pods]
    return next((act for act in acts if act.outcome.done), acts[0])


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


def _evict(api: Api, pod: GpuPod, *, delete_blocked: bool) -> EvictionResult:
    try:
        api.evict(namespace=pod.namespace, pod=pod.name, uid=pod.uid)
    except ApiError as error:
        if error.outdated:
            return EvictionResult(EvictionOutcome.GONE, error.message)
        if not error.held_by_budget:
            raise
        return _delete(api, pod) if delete_blocked else EvictionResult(EvictionOutcome.BLOCKED, error.message)
    return EvictionResult(EvictionOutcome.EVICTED)


def _delete(api: Api, pod: GpuPod) -> EvictionResult:
    try:
        api.delete(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", uid=pod.uid)
    except ApiError as error:
        if error.outdated:
            return EvictionResult(EvictionOutcome.GONE, error.message)
        raise
    return EvictionResult(EvictionOutcome.DELETED)
