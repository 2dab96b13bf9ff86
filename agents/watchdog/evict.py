"""How a target is recycled: the Eviction API, which heeds disruption budgets; for a queued Job, Kueue."""

import http.client
from dataclasses import dataclass
from enum import StrEnum

from agents.api import Api, ApiError
from agents.pods import Pod
from agents.verdict import Target
from tenancy.names import KUEUE_API

_TRIES = 3  # of a write that meets somebody else's


class Outcome(StrEnum):
    """What became of a target."""

    EVICTED = "evicted"
    DELETED = "deleted"
    DEACTIVATED = "deactivated"
    BLOCKED = "blocked"
    GONE = "gone"

    @property
    def done(self) -> bool:
        return self in (Outcome.EVICTED, Outcome.DELETED, Outcome.DEACTIVATED)


@dataclass(frozen=True)
class Act:
    """What became of a target, and in the API's words why."""

    outcome: Outcome
    detail: str = ""


def recycle(api: Api, target: Target, *, delete_blocked: bool) -> Act:
    """Each pod only under the uid that was decided on. Raises ApiError.

    A queued Job is deactivated: Kueue then suspends it, deletes its pods and gives its quota to the next. Its pods
    alone would come back within the same quota, or fail the Job.
    """
    if target.first.queued_as and _deactivate(api, target.first):
        return Act(Outcome.DEACTIVATED)
    acts = [_evict(api, pod, delete_blocked=delete_blocked) for pod in target.pods]
    return next((act for act in acts if act.outcome.done), acts[0])


def _deactivate(api: Api, pod: Pod) -> bool:
    """False where the Workload that the pod names is not its Job's: an annotation is no proof. Raises ApiError.

    Source: pkg/controller/core/workload_controller.go of Kueue, for spec.active: kueuectl stop workload does the same.
    """
    path = f"/apis/{KUEUE_API}/namespaces/{pod.namespace}/workloads/{pod.queued_as}"
    for _ in range(_TRIES):
        try:
            metadata = api.get(path)["metadata"]
            if not any(pod.owner and each["uid"] == pod.owner.uid for each in metadata.get("ownerReferences") or ()):
                return False
            version = {"resourceVersion": metadata["resourceVersion"]}
            api.merge_patch(path, {"metadata": version, "spec": {"active": False}})
        except ApiError as error:
            if error.status == http.client.NOT_FOUND:
                return False
            if not error.outdated:
                raise
        else:
            return True
    raise ApiError(f"PATCH {path}", None, "Conflict", f"the Workload changed {_TRIES} times while it was read")


def _evict(api: Api, pod: Pod, *, delete_blocked: bool) -> Act:
    try:
        api.evict(namespace=pod.namespace, pod=pod.name, uid=pod.uid)
    except ApiError as error:
        if error.outdated:
            return Act(Outcome.GONE, error.message)
        if not error.held_by_budget:
            raise
        return _delete(api, pod) if delete_blocked else Act(Outcome.BLOCKED, error.message)
    return Act(Outcome.EVICTED)


def _delete(api: Api, pod: Pod) -> Act:
    try:
        api.delete(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", uid=pod.uid)
    except ApiError as error:
        if error.outdated:
            return Act(Outcome.GONE, error.message)
        raise
    return Act(Outcome.DELETED)
