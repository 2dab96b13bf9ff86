"""Reads the facts about one pod or workload: its objects, its Events and its place in Kueue's queue.

The module also reads the acts with which the watchdog and the gate free memory.
"""

import http.client
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from agents.kube.client import ApiError, Object
from agents.runtime.errors import AgentError
from gpumem.cluster import ClusterSnapshot
from gpumem.pods import WholePod, Workload
from gpumem.report import said
from gpumem.source import Source
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
    LEADER_WORKER_SET_LABEL,
    SCHEDULER,
)
from tenancy.workload import ShapeError, condition, map_at, maps_at, text_at, value_or

_APPS = ("deployment", "statefulset", "replicaset", "daemonset")
_KINDS = {"pod": "/api/v1", **dict.fromkeys(_APPS, "/apis/apps/v1"), "job": "/apis/batch/v1"}
_SHORT = {
    "po": "pod",
    "deploy": "deployment",
    "sts": "statefulset",
    "rs": "replicaset",
    "ds": "daemonset",
    "lws": "leaderworkerset",
}
# The custom kinds that Kueue queues. Each pod of an object has a label of its kind, with the object's name as its
# value. Source: PodLabelSelector in pkg/controller/jobs of sigs.k8s.io/kueue.
_POD_LABELS = {
    FrameworkName.JOBSET: "jobset.sigs.k8s.io/jobset-name",
    FrameworkName.TRAIN_JOB: "jobset.sigs.k8s.io/jobset-name",
    FrameworkName.LEADER_WORKER_SET: LEADER_WORKER_SET_LABEL,
    FrameworkName.RAY_CLUSTER: "ray.io/cluster",
    FrameworkName.RAY_JOB: "ray.io/originated-from-cr-name",
    FrameworkName.MPI_JOB: "training.kubeflow.org/job-name",
}
CUSTOM_KINDS = {FRAMEWORKS[name].kind.lower(): FRAMEWORKS[name] for name in _POD_LABELS}
_MOST_AHEAD = 3  # the maximum number of Workloads that `why` names as being ahead in a queue
KINDS = (*_KINDS, *CUSTOM_KINDS)
# The watchdog and the gate write Events with these reasons when they free memory.
_ACTS = (EVENT_RECYCLED, EVENT_SPARED, EVENT_BLOCKED, EVENT_CAPPED, EVENT_TOO_LITTLE, EVENT_GATE_CLOSED)


class TargetError(AgentError):
    """Raised if the target cannot be found. The message of the error shows the form of a target."""


@dataclass(frozen=True)
class SeenEvent:
    """An Event of the API.

    `about` is the kind and the name of the Event's object. `at` is the time of the Event's last occurrence.
    """

    uid: str
    about: str
    namespace: str
    reason: str
    note: str
    at: datetime | None


@dataclass(frozen=True)
class WorkloadAhead:
    """A pending Workload that comes before another Workload in a ClusterQueue."""

    namespace: str
    name: str
    priority: int
    created: datetime


@dataclass(frozen=True)
class PendingWorkload:
    """The Workload object that Kueue has for queued work.

    `ahead` is the number of pending Workloads that come before the Workload in its ClusterQueue. `first` are the first
    of these Workloads. `holding` are the Workloads that have quota of the ClusterQueue or of its cohort. `ahead`,
    `first` and `holding` have only Workloads that the user may read.
    """

    workload: Object
    queue: str
    ahead: int
    pending: int
    first: tuple[WorkloadAhead, ...] = ()
    holding: tuple[Object, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The facts about the pod or workload that `why` explains.

    `workload` is None if the target is a pod that does not exist any more. `acts` has the Events about acts that free
    memory for other pods, with the newest first. `schedulers` is None if the user may not read the scheduler's pods.
    """

    cluster: ClusterSnapshot
    target: Workload
    workload: Object | None = None
    pods: tuple[WholePod, ...] = ()
    events: tuple[SeenEvent, ...] = ()
    queued: PendingWorkload | None = None
    acts: tuple[SeenEvent, ...] = ()
    schedulers: tuple[WholePod, ...] | None = None
    gaps: tuple[str, ...] = ()

    def newest(self, *reasons: str, uid: str | None = None) -> SeenEvent | None:
        """Returns the newest Event with one of these reasons, or None. With `uid`, it is about this object."""
        return next((each for each in self.events if each.reason in reasons and uid in (None, each.uid)), None)


def target_of(text: str, namespace: str) -> Workload:
    """Parses a target such as `POD` or `kind/NAME`. Raises TargetError."""
    kind, _, name = text.rpartition("/")
    kind = (kind or "pod").lower().partition(".")[0]
    kind = _SHORT.get(kind, kind)
    kind = kind if kind in KINDS else kind.removesuffix("s")
    if kind not in KINDS or not name:
        known = ", ".join(f"{each}/NAME" for each in KINDS)
        raise TargetError(f"{text!r}: write a pod's name, or {known}")
    return Workload(namespace, kind, name)


def gather(source: Source, cluster: ClusterSnapshot, target: Workload, system: str) -> Evidence:
    """Reads the facts about the target. Raises ApiError. Raises TargetError for a workload that does not exist, and for
    a pod that is gone without an Event."""
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
        seen = sorted(map(seen_event, events.result()), key=_moment, reverse=True)
        uids = {pod.uid for pod in pods} | makers
        owners = {workload["metadata"]["uid"], *(pod.uid for pod in pods)} if workload else set()
        queued = _queued(source, cluster, target, owners, gaps) if is_queued(target, pods) else None
        told = [each for each in seen if each.uid in uids or (workload is None and _is_about(each, target))]
        if workload is None and not told:
            raise TargetError(
                f"there is no {target}, and no Event about it: check its name, or name its workload, such as "
                "deployment/NAME"
            )
        return Evidence(
            cluster=cluster,
            target=target,
            workload=workload,
            pods=pods,
            events=tuple(told),
            queued=queued,
            acts=tuple(sorted((each for act in acts for each in act.result()), key=_moment, reverse=True)),
            schedulers=placing.result(),
            gaps=(*cluster.gaps, *gaps),
        )


def is_queued(target: Workload, pods: Iterable[WholePod]) -> bool:
    """Returns True if Kueue can suspend the target, or if a pod of the target has a scheduling gate."""
    return target.kind == "job" or target.kind in CUSTOM_KINDS or any(map(is_gated, pods))


def is_gated(pod: WholePod) -> bool:
    return any(gate.get("name") in GATES for gate in maps_at(pod.spec, "schedulingGates"))


def _find(source: Source, target: Workload) -> Object | None:
    try:
        return source.get(f"{_api(source, target.kind)}/namespaces/{target.namespace}/{target.kind}s/{target.name}")
    except ApiError as error:
        if error.status == http.client.NOT_FOUND:
            return None
        raise


def _api(source: Source, kind: str) -> str:
    """Returns the path of the kind's API. For a custom kind, the path has the version that the cluster prefers."""
    if kind in _KINDS:
        return _KINDS[kind]
    group = source.get(f"/apis/{CUSTOM_KINDS[kind].group}")
    return f"/apis/{group['preferredVersion']['groupVersion']}"


def _list(source: Source, path: str, gaps: list[str], **parameters: str) -> list[Object]:
    """Returns the items of a list, or an empty list after an error. After an error, adds the error to `gaps`."""
    try:
        return [*source.items(path, **parameters)]
    except ApiError as error:
        gaps.append(said(error))
        return []


def _schedulers(source: Source, system: str) -> tuple[WholePod, ...] | None:
    try:
        items = [*source.items(f"/api/v1/namespaces/{system}/pods", labelSelector=f"{LABEL_NAME}={SCHEDULER}")]
    except ApiError:
        return None
    return tuple(map(WholePod, items))


def _acts(source: Source, reason: str) -> list[SeenEvent]:
    try:
        return [*map(seen_event, source.items("/api/v1/events", fieldSelector=f"reason={reason}"))]
    except ApiError:
        return []


def _pods(
    cluster: ClusterSnapshot, target: Workload, workload: Object | None, sets: Iterable[Object]
) -> tuple[tuple[WholePod, ...], set[str]]:
    mine = [pod for pod in cluster.pods if pod.namespace == target.namespace]
    if workload is None:
        return (), set()
    if target.kind == "pod":
        return (WholePod(workload),), set()
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


def seen_event(event: Object) -> SeenEvent:
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


def _is_about(event: SeenEvent, target: Workload) -> bool:
    """Returns True if the Event is about an object with the target's name. It may be about a predecessor."""
    return event.about == f"{target.kind}/{target.name}"


def _moment(event: SeenEvent) -> float:
    return event.at.timestamp() if event.at else 0.0


def _queued(
    source: Source, cluster: ClusterSnapshot, target: Workload, owners: Set[str], gaps: list[str]
) -> PendingWorkload | None:
    """Returns the Workload of one of the owners, with the Workload's place in the queue. If several Workloads exist,
    prefers a waiting Workload.

    A ClusterQueue sorts Workloads by priority, then by age.
    """
    path = f"/apis/{KUEUE_API}/namespaces/{target.namespace}/workloads"
    own = readable(_list(source, path, gaps), gaps)
    found = [each for each in own if owners & {owner["uid"] for owner in each["metadata"].get("ownerReferences", ())}]
    mine = next((each for each in found if is_pending(each)), found[0] if found else None)
    if mine is None:
        return None
    queues = {(each.tenant, each.name): each.queue for each in cluster.ledger.local_queues}

    def queue_of(workload: Object) -> str | None:
        return queues.get((workload["metadata"]["namespace"], workload["spec"].get("queueName", "")))

    everyone = own
    if cluster.whole:
        listed = _list(source, f"/apis/{KUEUE_API}/workloads", gaps)
        everyone = readable(listed, gaps) if listed else own
    queue = queue_of(mine)
    pending = [each for each in everyone if queue_of(each) == queue and is_pending(each)]
    ahead = sorted((each for each in pending if _place(each) < _place(mine)), key=_place)
    return PendingWorkload(
        workload=mine,
        queue=queue or mine["spec"].get("queueName", ""),
        ahead=len(ahead),
        pending=len(pending),
        first=tuple(map(_ahead, ahead[:_MOST_AHEAD])),
        holding=tuple(each for each in everyone if queue_of(each) in _cohort_of(cluster, queue) and _has_quota(each)),
    )


def _cohort_of(cluster: ClusterSnapshot, queue: str | None) -> frozenset[str | None]:
    """Returns the queue, and the other ClusterQueues of its cohort."""
    cohorts = {
        map_at(each, "metadata").get("name"): text_at(map_at(each, "spec"), "cohortName")
        for each in cluster.cluster_queues
    }
    mine = cohorts.get(queue)
    return frozenset({queue, *(name for name, cohort in cohorts.items() if mine and cohort == mine)})


def _has_quota(workload: Object) -> bool:
    """Raises ShapeError."""
    held, ended = (condition(workload, kind).get("status") == "True" for kind in ("QuotaReserved", "Finished"))
    return held and not ended


def _ahead(workload: Object) -> WorkloadAhead:
    less_priority, created, name = _place(workload)
    return WorkloadAhead(workload["metadata"]["namespace"], name, -less_priority, datetime.fromisoformat(created))


def readable(workloads: Iterable[Object], gaps: list[str]) -> list[Object]:
    """Returns the Workloads that the function could decode. For each unreadable Workload, the function adds a sentence
    to `gaps`."""
    found = []
    for workload in workloads:
        try:
            is_pending(workload)
            _place(workload)
        except ShapeError as error:
            metadata = workload["metadata"]
            line = f"Workload {metadata['namespace']}/{metadata['name']} is not counted: {error}"
            if line not in gaps:
                gaps.append(line)
            continue
        found.append(workload)
    return found


def is_pending(workload: Object) -> bool:
    """Returns True if the Workload still waits for quota. Raises ShapeError."""
    conditions = maps_at(map_at(workload, "status"), "conditions")
    states = {text_at(each, "type"): text_at(each, "status") for each in conditions}
    ended, reserved = states.get("Finished") == "True", states.get("QuotaReserved") == "True"
    return not ended and not reserved and value_or(map_at(workload, "spec"), "active", True) is not False


def _place(workload: Object) -> tuple[int, str, str]:
    """Raises ShapeError."""
    priority = value_or(map_at(workload, "spec"), "priority", 0)
    if not isinstance(priority, int):
        raise ShapeError(f"spec.priority must be a whole number (got {priority!r})")
    return -priority, workload["metadata"]["creationTimestamp"], workload["metadata"]["name"]
