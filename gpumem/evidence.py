"""Reads the facts about one pod or workload: its objects, its Events and its place in Kueue's queue.

The module also reads the acts by which the watchdog and the gate free memory.
"""

import http.client
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from agents.kube.client import ApiError, Object
from agents.kube.pods import Pod
from agents.runtime.errors import AgentError
from gpumem.cluster import ClusterSnapshot
from gpumem.kubectl import Kubectl
from tenancy.frameworks import FRAMEWORKS, GATES, FrameworkName
from tenancy.names import (
    EVENT_BLOCKED,
    EVENT_CAPPED,
    EVENT_GATE_CLOSED,
    EVENT_RECYCLED,
    EVENT_SPARED,
    EVENT_TOO_LITTLE,
    KUEUE_API,
    LABEL_NAME,
    SCHEDULER,
)
from tenancy.workload import maps_at

_KINDS = {"pod": "/api/v1", "deployment": "/apis/apps/v1", "statefulset": "/apis/apps/v1", "job": "/apis/batch/v1"}
_SHORT = {"po": "pod", "deploy": "deployment", "sts": "statefulset", "lws": "leaderworkerset"}
# The custom kinds that Kueue queues, each with the label that has the object's name on its pods. Source:
# PodLabelSelector in pkg/controller/jobs of sigs.k8s.io/kueue.
_POD_LABELS = {
    FrameworkName.JOBSET: "jobset.sigs.k8s.io/jobset-name",
    FrameworkName.TRAIN_JOB: "jobset.sigs.k8s.io/jobset-name",
    FrameworkName.LEADER_WORKER_SET: "leaderworkerset.sigs.k8s.io/name",
    FrameworkName.RAY_CLUSTER: "ray.io/cluster",
    FrameworkName.RAY_JOB: "ray.io/originated-from-cr-name",
    FrameworkName.MPI_JOB: "training.kubeflow.org/job-name",
}
CUSTOM_KINDS = {FRAMEWORKS[name].kind.lower(): FRAMEWORKS[name] for name in _POD_LABELS}
# The watchdog and the gate write these Events when they free memory.
_ACTS = (EVENT_RECYCLED, EVENT_SPARED, EVENT_BLOCKED, EVENT_CAPPED, EVENT_TOO_LITTLE, EVENT_GATE_CLOSED)


class TargetError(AgentError):
    """Raised when the target cannot be found. The message shows how to write a target."""


@dataclass(frozen=True)
class WorkloadRef:
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class SeenEvent:
    """An Event of the API.

    `about` is the kind and the name of the Event's object. `at` is the time at which the Event happened last.
    """

    uid: str
    about: str
    namespace: str
    reason: str
    note: str
    at: datetime | None


@dataclass(frozen=True)
class PendingWorkload:
    """The Workload object that Kueue has for queued work.

    `ahead` is the number of pending Workloads that come before this Workload in the ClusterQueue. `ahead` counts only
    Workloads that the user may read.
    """

    workload: Object
    queue: str
    ahead: int
    pending: int


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The facts about the target.

    `workload` is None if the target is a pod that does not exist any more. `acts` are Events about acts that free
    memory for other pods, the newest first. `schedulers` is None if the user may not read the scheduler's pods.
    """

    cluster: ClusterSnapshot
    target: WorkloadRef
    workload: Object | None = None
    pods: tuple[Pod, ...] = ()
    events: tuple[SeenEvent, ...] = ()
    queued: PendingWorkload | None = None
    acts: tuple[SeenEvent, ...] = ()
    schedulers: tuple[Pod, ...] | None = None
    gaps: tuple[str, ...] = ()

    def newest(self, *reasons: str) -> SeenEvent | None:
        """Returns the newest Event with one of these reasons, or None."""
        return next((each for each in self.events if each.reason in reasons), None)


def target_of(text: str, namespace: str) -> WorkloadRef:
    """Parses a target such as `POD` or `kind/NAME`. Raises TargetError."""
    kind, _, name = text.rpartition("/")
    kind = (kind or "pod").lower().partition(".")[0]
    kind = _SHORT.get(kind, kind)
    known_kinds = (*_KINDS, *CUSTOM_KINDS)
    kind = kind if kind in known_kinds else kind.removesuffix("s")
    if kind not in known_kinds or not name:
        known = ", ".join(f"{each}/NAME" for each in known_kinds)
        raise TargetError(f"{text!r}: write a pod's name, or {known}")
    return WorkloadRef(kind, namespace, name)


def gather(source: Kubectl, cluster: ClusterSnapshot, target: WorkloadRef, system: str) -> Evidence:
    """Reads the facts about the target. Raises ApiError. Raises TargetError if the workload does not exist."""
    gaps: list[str] = []
    base = f"/namespaces/{target.namespace}"
    with ThreadPoolExecutor(8) as threads:
        found = threads.submit(_find, source, target)
        events = threads.submit(_list, source, f"/api/v1{base}/events", gaps)
        sets = threads.submit(_list, source, f"/apis/apps/v1{base}/replicasets", gaps)
        placing = threads.submit(_schedulers, source, system)
        acts = [threads.submit(_acts, source, reason) for reason in _ACTS] if cluster.whole else []
        workload = found.result()
        if workload is None and target.kind != "pod":
            raise TargetError(f"there is no {target}")
        pods, makers = _pods(cluster, target, workload, sets.result() if target.kind == "deployment" else ())
        seen = sorted(map(_event, events.result()), key=_moment, reverse=True)
        uids = {pod.uid for pod in pods} | makers
        owners = {workload["metadata"]["uid"], *(pod.uid for pod in pods)} if workload else set()
        queued = _queued(source, cluster, target, owners, gaps) if is_queued(target, pods) else None
        return Evidence(
            cluster=cluster,
            target=target,
            workload=workload,
            pods=pods,
            events=tuple(each for each in seen if each.uid in uids or _is_about(each, target)),
            queued=queued,
            acts=tuple(sorted((each for act in acts for each in act.result()), key=_moment, reverse=True)),
            schedulers=placing.result(),
            gaps=(*cluster.gaps, *gaps),
        )


def is_queued(target: WorkloadRef, pods: Iterable[Pod]) -> bool:
    """Returns True if Kueue may hold the target back: by its suspension, or by a scheduling gate of its pods."""
    return target.kind == "job" or target.kind in CUSTOM_KINDS or any(map(is_gated, pods))


def is_gated(pod: Pod) -> bool:
    return any(gate.get("name") in GATES for gate in maps_at(pod.spec, "schedulingGates"))


def _find(source: Kubectl, target: WorkloadRef) -> Object | None:
    try:
        return source.get(f"{_api(source, target.kind)}/namespaces/{target.namespace}/{target.kind}s/{target.name}")
    except ApiError as error:
        if error.status == http.client.NOT_FOUND:
            return None
        raise


def _api(source: Kubectl, kind: str) -> str:
    """Returns the path of the kind's API. For a custom kind, the path has the version that the cluster prefers."""
    if kind in _KINDS:
        return _KINDS[kind]
    group = source.get(f"/apis/{CUSTOM_KINDS[kind].group}")
    return f"/apis/{group['preferredVersion']['groupVersion']}"


def _list(source: Kubectl, path: str, gaps: list[str], **parameters: str) -> list[Object]:
    """Returns the items of a list, or an empty list after an error. Adds the error to `gaps`."""
    try:
        return [*source.items(path, **parameters)]
    except ApiError as error:
        gaps.append(str(error))
        return []


def _schedulers(source: Kubectl, system: str) -> tuple[Pod, ...] | None:
    try:
        items = [*source.items(f"/api/v1/namespaces/{system}/pods", labelSelector=f"{LABEL_NAME}={SCHEDULER}")]
    except ApiError:
        return None
    return tuple(map(Pod, items))


def _acts(source: Kubectl, reason: str) -> list[SeenEvent]:
    try:
        return [*map(_event, source.items("/api/v1/events", fieldSelector=f"reason={reason}"))]
    except ApiError:
        return []


def _pods(
    cluster: ClusterSnapshot, target: WorkloadRef, workload: Object | None, sets: Iterable[Object]
) -> tuple[tuple[Pod, ...], set[str]]:
    """Returns the pods of the target, and the UIDs of the controllers of these pods."""
    mine = [pod for pod in cluster.pods if pod.namespace == target.namespace]
    if workload is None:
        return (), set()
    if target.kind == "pod":
        return (Pod(workload),), set()
    if target.kind in CUSTOM_KINDS:
        label = _POD_LABELS[CUSTOM_KINDS[target.kind].name]
        return tuple(pod for pod in mine if pod.labels.get(label) == target.name), {workload["metadata"]["uid"]}
    uid = workload["metadata"]["uid"]
    makers = {uid, *(each["metadata"]["uid"] for each in sets if _owner(each) == uid)}
    owned = [pod for pod in mine if pod.controller is not None and pod.controller.uid in makers]
    return tuple(sorted(owned, key=lambda pod: (pod.created, pod.name))), makers


def _owner(item: Object) -> str | None:
    owners: Sequence[Mapping[str, str]] = item["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)


def _event(event: Object) -> SeenEvent:
    about = event.get("involvedObject") or {}
    series = event.get("series") or {}
    at = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return SeenEvent(
        uid=about.get("uid", ""),
        about=f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        namespace=about.get("namespace", ""),
        reason=event.get("reason") or "",
        note=event.get("message") or "",
        at=datetime.fromisoformat(at) if at else None,
    )


def _is_about(event: SeenEvent, target: WorkloadRef) -> bool:
    """Returns True if the Event is about the target. The pod or workload itself may be gone."""
    return event.about == f"{target.kind}/{target.name}"


def _moment(event: SeenEvent) -> float:
    return event.at.timestamp() if event.at else 0.0


def _queued(
    source: Kubectl, cluster: ClusterSnapshot, target: WorkloadRef, owners: Set[str], gaps: list[str]
) -> PendingWorkload | None:
    """Returns the Workload of one of the owners and its place in the queue, preferably a Workload that waits.

    A ClusterQueue sorts Workloads by priority, then by age.
    """
    path = f"/apis/{KUEUE_API}/namespaces/{target.namespace}/workloads"
    own = _list(source, path, gaps)
    found = [each for each in own if owners & {owner["uid"] for owner in each["metadata"].get("ownerReferences", ())}]
    mine = next((each for each in found if is_pending(each)), found[0] if found else None)
    if mine is None:
        return None
    queues = {(each.tenant, each.name): each.queue for each in cluster.ledger.local_queues}

    def queue_of(workload: Object) -> str | None:
        return queues.get((workload["metadata"]["namespace"], workload["spec"].get("queueName", "")))

    everyone = own
    if cluster.whole:
        everyone = _list(source, f"/apis/{KUEUE_API}/workloads", gaps) or own
    queue = queue_of(mine)
    pending = [each for each in everyone if queue_of(each) == queue and is_pending(each)]
    ahead = sum(_place(each) < _place(mine) for each in pending)
    return PendingWorkload(
        workload=mine, queue=queue or mine["spec"].get("queueName", ""), ahead=ahead, pending=len(pending)
    )


def is_pending(workload: Object) -> bool:
    """Returns True if the Workload still waits for quota."""
    states = {each["type"]: each["status"] for each in (workload.get("status") or {}).get("conditions") or ()}
    ended, reserved = states.get("Finished") == "True", states.get("QuotaReserved") == "True"
    return not ended and not reserved and workload["spec"].get("active", True)


def _place(workload: Object) -> tuple[int, str, str]:
    return (
        -int(workload["spec"].get("priority") or 0),
        workload["metadata"]["creationTimestamp"],
        workload["metadata"]["name"],
    )
