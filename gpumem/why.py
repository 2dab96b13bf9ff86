"""Implements `kubectl gpumem why`. Finds the reason why a pod, or the pods of a workload, do not run. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from agents.kube.client import Object
from agents.kube.fields import FieldError
from gpumem.cluster import age
from gpumem.evidence import CUSTOM_KINDS, Evidence, PendingWorkload, SeenEvent, is_gated, is_pending
from gpumem.nodes import reason_in_message, reason_of, unjudged, verdicts
from gpumem.pods import WholePod
from gpumem.reasons import FINE, REASONS
from tenancy import names, policy_names
from tenancy.workload import condition, map_at, maps_at, text_at

_DENIED = re.compile(r"ValidatingAdmissionPolicy '([^']+)'.* denied request: (.*)", re.DOTALL)
_NO_CLASS = re.compile(r"no PriorityClass with name \S+ was found")
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_NEVER_RAN = ("StartError", "ContainerCannotRun")  # the reasons of containers that ended before they had a log
_OF_THE_DEVICE = re.compile(r"nvidia-container|NVIDIA_VISIBLE_DEVICES|CDI device|unknown device", re.IGNORECASE)
_REJECTED = re.compile(r"Pod was rejected|^(UnexpectedAdmissionError|OutOf\S+|NodeAffinity|TopologyAffinityError)$")
_UNTRIED_SECONDS = 60  # A scheduler that runs has tried a pod that is older than this.
_GATE_EVENTS = (
    names.EVENT_GATE_WAITS,
    names.EVENT_GATE_LEFT_ALONE,
    names.EVENT_GATE_UNANSWERED,
    names.EVENT_GATE_REFUSED,
    names.EVENT_GATE_WOULD_OPEN,
    names.EVENT_GATE_CLOSED,
)
_ACTS_SECONDS = 600
_FULL = ("node-sum", "device", "measured", "held")  # the reasons that end once a pod on the node ends


@dataclass(frozen=True, kw_only=True)
class AheadRow:
    """A Workload that Kueue admits before the target."""

    namespace: str
    name: str
    priority: int
    age: str


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """The number of Workloads before the target in its queue, and the first of these Workloads."""

    total: int
    first: tuple[AheadRow, ...]


@dataclass(frozen=True, kw_only=True)
class HeldBy:
    """A pod or a Workload that holds what the target waits for.

    `mib` is the pod's memory on all its devices, or None for a Workload and for a pod with whole devices. `age` is the
    time since the pod was created, or since the Workload got its quota.
    """

    namespace: str
    name: str
    mib: int | None
    age: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The reason why one pod or workload does not run.

    `reason` is a key of REASONS. `title`, `then` and `do` are the texts for this key. `text` explains the reason with
    numbers. `more` has a sentence for each node, each Event, and each act that frees memory. `ahead` is None unless the
    target waits in a queue. `held_by` has the pods on the nearest node, or the Workloads in the queue, that have what
    the target waits for, the newest first.
    """

    about: str
    reason: str
    title: str
    text: str
    then: str
    do: str
    more: tuple[str, ...] = ()
    ahead: Ahead | None = None
    held_by: tuple[HeldBy, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Why:
    """The report of `kubectl gpumem why`.

    `fine` is true if every pod runs or has completed. Pods with the same reason and text have one common entry in
    `answers`.
    """

    target: str
    fine: bool
    answers: tuple[Answer, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class _Found:
    reason: str
    text: str
    more: tuple[str, ...] = ()
    ahead: Ahead | None = None
    held_by: tuple[HeldBy, ...] = ()


def why(evidence: Evidence) -> Why:
    """Returns the reasons of the target's pods, or the reason why the target has no pods."""
    about = str(evidence.target)
    if not evidence.pods:
        answers = [_answer(about, _without_pods(evidence))]
    else:
        answers = [_answer(f"pod {pod}", _pod(pod, evidence)) for pod in evidence.pods]
        missing = _missing(evidence)
        if missing is not None:
            answers.append(_answer(about, missing))
    shown = _distinct(answers)
    return Why(
        target=about,
        fine=all(each.reason in FINE for each in shown),
        answers=tuple(shown),
        unknown=evidence.gaps,
    )


def _answer(about: str, found: _Found) -> Answer:
    return Answer(about=about, **vars(REASONS[found.reason]), **vars(found))


def _distinct(answers: Sequence[Answer]) -> list[Answer]:
    """Returns one entry for each different reason and text. Entries about pods with a problem come first."""
    first: dict[tuple[str, str], Answer] = {}
    for each in sorted(answers, key=lambda each: each.reason in FINE):
        first.setdefault((each.reason, each.text), each)
    return [*first.values()]


def _without_pods(evidence: Evidence) -> _Found:
    workload, kind = evidence.workload, evidence.target.kind
    if workload is None:
        return _gone(evidence)
    if kind == "job":
        return _job(evidence, workload)
    if evidence.queued:
        return _queue(evidence.queued, evidence)
    if kind in CUSTOM_KINDS:
        return _missing(evidence) or _Found("unqueued", "Kueue has no Workload for it")
    return _uncreated(evidence, workload)


def _uncreated(evidence: Evidence, workload: Object) -> _Found:
    if evidence.target.kind == "daemonset":
        wanted = map_at(workload, "status").get("desiredNumberScheduled")
        if wanted == 0:
            return _Found("scaled", "no node matches its node selector, affinity and tolerations")
    else:
        wanted = map_at(workload, "spec").get("replicas")
        if wanted == 0:
            return _closed(evidence)
    return _missing(evidence) or _Found("uncreated", f"{wanted or 1} wanted, none is there")


def _gone(evidence: Evidence) -> _Found:
    recycled = evidence.newest(names.EVENT_RECYCLED)
    if recycled:
        return _Found("recycled", recycled.note)
    evicted = evidence.newest("Preempted", "Evicted", "TaintManagerEviction", "EvictionByEvictionAPI")
    if evicted:
        return _Found("evicted", f"{evicted.reason}: {evicted.note}")
    last = evidence.events[0]
    return _Found("gone", f"{last.reason}: {last.note}")


def _closed(evidence: Evidence) -> _Found:
    target = evidence.target
    gates = [
        each for each in evidence.cluster.gates if (each.namespace, each.deployment) == (target.namespace, target.name)
    ]
    if not gates or target.kind != "deployment":
        return _Found("scaled", "0 replicas are wanted")
    gate, event = gates[0], evidence.newest(*_GATE_EVENTS)
    needs = f"it needs {gate.need_mib} MiB of {gate.pool} above the floor and its margin"
    text = f"{event.note} ({_ago(event, evidence)})" if event else needs
    return _Found("gate", text, (needs,) if event else ())


def _missing(evidence: Evidence) -> _Found | None:
    """Returns the reason why the controller could not create a pod.

    If the controller has created a pod since then, returns None.
    """
    failed = evidence.newest("FailedCreate")
    if failed is None or evidence.target.kind == "pod":
        return None
    newest = max((pod.created for pod in evidence.pods), default=None)
    if newest and failed.at and newest > failed.at:
        return None
    return _refused(failed.note, evidence.cluster.ledger.names.gpumem)


def _refused(note: str, gpumem: str) -> _Found:
    if "exceeded quota" in note:
        exceeded = note[note.index("exceeded quota") :]
        gpus = (gpumem, names.GPU)
        return _Found("quota" if any(each in exceeded for each in gpus) else "namespace-quota", exceeded)
    denied = _DENIED.search(note)
    if denied:
        policy, message = denied[1], denied[2].strip()
        of_class = policy == policy_names.HOST_MEMORY_CLASSES or message.startswith("priorityClassName ")
        return _Found("class" if of_class else "admission", f"{policy}: {message}")
    if _NO_CLASS.search(note):
        return _Found("class", note)
    if "error looking up service account" in note:
        return _Found("missing", note)
    return _Found("admission", note) if "forbidden" in note or "denied" in note else _Found("uncreated", note)


def _job(evidence: Evidence, job: Object) -> _Found:
    spec, conditions = map_at(job, "spec"), _conditions(job)
    if "Complete" in conditions:
        return _Found("completed", "the Job is complete")
    if "Failed" in conditions:
        return _Found("failed", str(conditions["Failed"].get("message") or "the Job has failed"))
    if evidence.queued:
        return _queue(evidence.queued, evidence)
    if spec.get("suspend"):
        return _Found("unqueued", "spec.suspend is true")
    return _missing(evidence) or _Found("uncreated", "no pod of it is there")


def _queue(queued: PendingWorkload, evidence: Evidence) -> _Found:
    workload, conditions = queued.workload, _conditions(queued.workload)
    if "Finished" in conditions:
        ended = conditions["Finished"]
        return _Found("failed" if ended.get("reason") == "Failed" else "completed", str(ended.get("message")))
    if not workload["spec"].get("active", True):
        cause = _message(workload, "Evicted")
        return _Found(
            "deactivated",
            f"Workload {workload['metadata']['name']}: spec.active is false" + (f"; {cause}" if cause else ""),
        )
    if not queued.queue:
        return _Found("unqueued", "it names no queue, and its namespace has no LocalQueue named default")
    if not is_pending(workload):
        return _dispatched(workload, queued.queue) or _admitted(queued)
    place = f"ClusterQueue {queued.queue}: {queued.ahead} of {queued.pending} waiting are before it"
    message, preempted = _message(workload, "QuotaReserved"), conditions.get("Preempted")
    ahead = _ahead(queued, evidence)
    held_by = _with_quota(queued, evidence)
    if preempted is None:
        return _Found("queue", place, (message,) if message else (), ahead, held_by)
    by = str(preempted.get("message") or "")
    return _Found(
        "preempted", f"{place}; {by}", (message,) if message not in ("", by) else (), ahead, held_by
    )  # The condition Preempted stays until Kueue tries the Workload again.


def _ahead(queued: PendingWorkload, evidence: Evidence) -> Ahead:
    now = evidence.cluster.now
    rows = (
        AheadRow(
            namespace=each.namespace,
            name=each.name,
            priority=each.priority,
            age=age((now - each.created).total_seconds()),
        )
        for each in queued.first
    )
    return Ahead(total=queued.ahead, first=tuple(rows))


def _with_quota(queued: PendingWorkload, evidence: Evidence) -> tuple[HeldBy, ...]:
    """Returns the Workloads that have quota of the queue. Each has the name of its owner."""
    rows = []
    for each in queued.holding:
        metadata, owner = each["metadata"], next(iter(maps_at(each["metadata"], "ownerReferences")), {})
        name = f"{text_at(owner, 'kind').lower()}/{text_at(owner, 'name')}" if owner.get("kind") else metadata["name"]
        at = text_at(condition(each, "QuotaReserved"), "lastTransitionTime") or metadata["creationTimestamp"]
        rows.append((at, HeldBy(namespace=metadata["namespace"], name=name, mib=None, age=_since(at, evidence))))
    return tuple(row for _, row in sorted(rows, key=lambda each: each[0], reverse=True))


def _since(at: str, evidence: Evidence) -> str:
    return age((evidence.cluster.now - datetime.fromisoformat(at)).total_seconds())


def _dispatched(workload: Object, queue: str) -> _Found | None:
    """Returns the worker cluster to which Kueue dispatched the Workload, or the reason why no cluster has it yet.

    If Kueue does not dispatch the Workload, returns None.
    """
    status = map_at(workload, "status")
    checks = {str(each.get("name")): each for each in maps_at(status, "admissionChecks")}
    check = checks.get(names.multi_kueue_check(queue))
    if check is None:
        return None
    message = str(check.get("message") or "")
    if cluster := status.get("clusterName"):
        return _Found("elsewhere", f"in worker cluster {cluster}", (message,) if message else ())
    offered = ", ".join(map(str, status.get("nominatedClusterNames") or ())) or "no worker cluster"
    return _Found("dispatch", f"offered to {offered}", (message,) if message else ())


def _admitted(queued: PendingWorkload) -> _Found:
    checks = maps_at(map_at(queued.workload, "status"), "admissionChecks")
    waits = [f"{each['name']} is {each['state']}" for each in checks if each["state"] != "Ready"]
    if not waits:
        return _Found("uncreated", f"ClusterQueue {queued.queue} has admitted it; its pods are not there yet")
    more = tuple(str(each["message"]) for each in checks if each.get("message"))
    return _Found("check", f"ClusterQueue {queued.queue} has reserved its quota; {', '.join(waits)}", more)


def _pod(pod: WholePod, evidence: Evidence) -> _Found:
    # A terminating pod comes first, because the exit codes of its containers do not show the reason.
    if pod.terminating:
        recycled = evidence.newest(names.EVENT_RECYCLED, uid=pod.uid)
        return _Found("terminating", _ends(pod), (recycled.note,) if recycled else ())
    if pod.status.get("phase") == "Succeeded":
        return _Found("completed", "its containers ended with status 0")
    if pod.ended:
        return _ended(pod)
    return _on_node(pod, evidence) if pod.node else _waits(pod, evidence)


def _ends(pod: WholePod) -> str:
    if pod.ended:
        finalizers = ", ".join(pod.metadata.get("finalizers", ()))
        return f"its containers have ended{finalizers and f'; finalizers keep it: {finalizers}'}"
    return f"until {pod.gone_by:%H:%M:%S} UTC at the latest" if pod.gone_by else "its deletion began"


def _ended(pod: WholePod) -> _Found:
    disrupted = _conditions(pod.item).get("DisruptionTarget")
    if disrupted:
        return _Found("evicted", f"{disrupted.get('reason')}: {disrupted.get('message')}")
    if pod.status.get("reason") == "Evicted":
        return _Found("evicted", str(pod.status.get("message")))
    told = [str(pod.status.get(field) or "") for field in ("reason", "message")]
    if any(map(_REJECTED.search, told)):
        return _Found("rejected", ": ".join(filter(None, told)))
    return _Found("failed", str(pod.status.get("message") or pod.status.get("reason") or "a container failed"))


def _on_node(pod: WholePod, evidence: Evidence) -> _Found:
    lost = evidence.newest(names.EVENT_DEVICE_LOST, uid=pod.uid)
    if lost:
        return _Found("device-lost", lost.note)
    stuck = next(_stuck(pod), None)
    if stuck:
        return stuck
    node = evidence.cluster.nodes.get(pod.node or "", {})
    if "Ready" not in _conditions(node):
        state = "not ready" if node else "no node of the cluster any more"
        return _Found("not-ready", f"it is on {pod.node}, which is {state}")
    if pod.running:
        placed = evidence.newest(names.EVENT_PLACED, names.EVENT_SEAT_OVERCROWDED, uid=pod.uid)
        return _Found("runs", f"on {pod.node}{_devices(pod, evidence)}", (placed.note,) if placed else ())
    failing = evidence.newest("FailedMount", "FailedCreatePodSandBox", "FailedAttachVolume", uid=pod.uid)
    if failing:
        return _Found("device-error" if _OF_THE_DEVICE.search(failing.note) else "config", failing.note)
    return _Found("starting", f"on {pod.node}{_devices(pod, evidence)}")


def _stuck(pod: WholePod) -> Iterator[_Found]:
    """Yields the reasons of containers that crash or do not start.

    A crashed container is `terminated` for a short time before the kubelet starts it again.
    """
    for status in _containers(pod):
        ended = map_at(status, "state", "terminated")
        last = ended or map_at(status, "lastState", "terminated")
        if last.get("reason") in _NEVER_RAN:
            message = f"container {status.get('name')}: {last['reason']}: {last.get('message')}"
            yield _Found("device-error" if _OF_THE_DEVICE.search(message) else "config", message)
        if ended.get("exitCode") and pod.spec.get("restartPolicy") != "Never":
            yield _Found("crash", f"container {status.get('name')}: {_end(status, ended)}")
        waiting = map_at(status, "state", "waiting")
        reason, text = waiting.get("reason", ""), _container(status, waiting)
        if reason in _IMAGE:
            yield _Found("image", text)
        elif reason in _CONFIG:
            yield _Found("device-error" if _OF_THE_DEVICE.search(text) else "config", text)
        elif reason == "CrashLoopBackOff":
            yield _Found("crash", f"{text}; {_end(status, map_at(status, 'lastState', 'terminated'))}")


def _waits(pod: WholePod, evidence: Evidence) -> _Found:
    held_by = [gate.get("name", "") for gate in maps_at(pod.spec, "schedulingGates")]
    if held_by:
        waits = _Found("scheduling-gate", f"spec.schedulingGates: {', '.join(held_by)}")
        return _queue(evidence.queued, evidence) if evidence.queued and is_gated(pod) else waits
    last = condition(pod.item, "PodScheduled")
    message = str(last.get("message") or "")
    ours = pod.spec.get("schedulerName") == names.SCHEDULER_NAME
    if ours and evidence.schedulers is not None and not any(map(_ready, evidence.schedulers)):
        count = len(evidence.schedulers)
        return _Found("scheduler", f"{count} pods of {names.SCHEDULER} are there, none is ready", _also(message))
    if last.get("reason") == "SchedulerError":
        return _Found("extender", message)
    try:
        request = pod.memory_request(evidence.cluster.ledger.names)
    except FieldError as error:
        return _Found("too-large", str(error))
    if request is not None and evidence.cluster.whole:
        return _by_nodes(pod, evidence, message)
    return _by_message(pod, evidence, message)


def _by_message(pod: WholePod, evidence: Evidence, message: str) -> _Found:
    more = tuple(_events_about(pod, evidence))
    if message:
        held_by = _with_devices(evidence) if f"Insufficient {names.GPU}" in message else ()
        return _Found(reason_in_message(message, evidence.cluster.ledger.names.gpumem), message, more, held_by=held_by)
    return _untried(pod, evidence, f"it was made {_age(pod, evidence)} ago", more)


def _untried(pod: WholePod, evidence: Evidence, text: str, more: tuple[str, ...]) -> _Found:
    """Returns the answer for a pod that no scheduler has tried."""
    if (evidence.cluster.now - pod.created).total_seconds() <= _UNTRIED_SECONDS:
        return _Found("untried", text, more)
    by = pod.spec.get("schedulerName") or "its scheduler"
    return _Found("scheduler", f"{by} has not tried to place it since it was made, {_age(pod, evidence)} ago", more)


def _by_nodes(pod: WholePod, evidence: Evidence, message: str) -> _Found:
    request = pod.memory_request(evidence.cluster.ledger.names)
    judged = verdicts(evidence.cluster, pod, request) if request else ()
    more = (*(f"{each.node}: {each.text}" for each in judged), *_events_about(pod, evidence), *_also(message))
    if not judged:
        return _Found("selector", "no node is in a pool that shares memory", more)
    nearest = judged[0]
    held_by = _on(nearest.node, evidence) if nearest.reason in _FULL else ()
    total = f"asks for {request.total_mib} MiB" if request else ""
    asked = f"{total} on {request.count} devices" if request and request.count > 1 else total
    others = unjudged(message, evidence.cluster.ledger.names.gpumem)
    of_the_pod = any(not each[0].isdigit() for each in others)
    if others and (nearest.reason == "untried" or of_the_pod):
        return _Found(reason_of(others), f"{asked}; kube-scheduler: {message}", more)
    text = f"{asked}; {nearest.node} {_verb(nearest.text)}"
    if nearest.reason == "untried" and not message:
        return _untried(pod, evidence, text, more)
    return _Found(nearest.reason, text, more, held_by=held_by)


def _on(node: str, evidence: Evidence) -> tuple[HeldBy, ...]:
    """Returns the pods that hold GPU memory of the node."""
    held = evidence.cluster.cache.node(node).pods
    mine = [pod for pod in evidence.cluster.pods if pod.uid in held]
    return tuple(
        HeldBy(namespace=pod.namespace, name=pod.name, mib=held[pod.uid].request.total_mib, age=_age(pod, evidence))
        for pod in sorted(mine, key=lambda pod: pod.created, reverse=True)
    )


def _with_devices(evidence: Evidence) -> tuple[HeldBy, ...]:
    """Returns the pods that have whole devices of any node."""
    pods = [pod for pod in evidence.cluster.pods if pod.node and not pod.ended and pod.request(names.GPU)]
    return tuple(
        HeldBy(namespace=pod.namespace, name=pod.name, mib=None, age=_age(pod, evidence))
        for pod in sorted(pods, key=lambda pod: pod.created, reverse=True)
    )


def _events_about(pod: WholePod, evidence: Evidence) -> Iterator[str]:
    for each in evidence.events:
        if each.uid == pod.uid and each.reason == names.EVENT_SEAT_HELD:
            yield f"{each.reason} ({_ago(each, evidence)}): {each.note}"
            break
    for act in evidence.acts:
        if act.at and act.at >= pod.created and (evidence.cluster.now - act.at).total_seconds() < _ACTS_SECONDS:
            yield f"{act.reason} on {act.namespace}/{act.about.partition('/')[2]} ({_ago(act, evidence)}): {act.note}"


def _also(message: str) -> tuple[str, ...]:
    return (f"kube-scheduler: {message}",) if message else ()


def _verb(text: str) -> str:
    return text if text.startswith(("has ", "is ", "advertises ")) else f"has no room: {text}"


def _ready(pod: WholePod) -> bool:
    return "Ready" in _conditions(pod.item) and not pod.terminating


def _conditions(item: Object) -> dict[str, Object]:
    return {c["type"]: c for c in maps_at(map_at(item, "status"), "conditions") if c.get("status") == "True"}


def _message(item: Object, kind: str) -> str:
    return str(condition(item, kind).get("message") or "")


def _containers(pod: WholePod) -> list[Object]:
    return [*maps_at(pod.status, "initContainerStatuses"), *maps_at(pod.status, "containerStatuses")]


def _container(status: Object, waiting: Object) -> str:
    message = waiting.get("message")
    return f"container {status.get('name')}: {waiting.get('reason')}{f': {message}' if message else ''}"


def _end(status: Object, ended: Object) -> str:
    code, reason = ended.get("exitCode"), ended.get("reason")
    return f"it was restarted {status.get('restartCount', 0)} times, and ended last with exit code {code} ({reason})"


def _devices(pod: WholePod, evidence: Evidence) -> str:
    index = pod.annotations.get(evidence.cluster.ledger.names.device_index)
    return f", gpu {index}" if index else ""


def _age(pod: WholePod, evidence: Evidence) -> str:
    return age((evidence.cluster.now - pod.created).total_seconds())


def _ago(event: SeenEvent, evidence: Evidence) -> str:
    return f"{age((evidence.cluster.now - event.at).total_seconds())} ago" if event.at else "at an unknown time"
