"""Judges if a node takes new pods, for all reports, and finds the reason why each node does not take a given pod.

The module uses the cache of the extender. Pure.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agents.extender.cache.pod_info import Entitlement
from agents.extender.cache.search import Answer
from agents.kube.client import Object
from gpumem.cluster import ClusterSnapshot
from gpumem.pods import WholePod
from tenancy.choices import Sharing
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import seats_for
from tenancy.names import GPU, GPU_TAINT, LABEL_PART_OF, PROJECT, REFUSED_AS_MEASURED
from tenancy.quantity import whole
from tenancy.workload import condition, map_at, maps_at, tolerates

# The reasons why a node does not take a pod. The node with the last reason of this list is closest to taking the pod.
# The report of `why` shows the reason of the closest node.
NEARNESS = (
    "selector",
    "taint",
    "too-large",
    "unusable",
    "capacity",
    "not-ready",
    "cordoned",
    "node-sum",
    "device",
    "measured",
    "held",
    "resources",
    "untried",
)
_REPELLENT = ("NoSchedule", "NoExecute")
_OF_KUBERNETES = "node.kubernetes.io/"
_CORDON = f"{_OF_KUBERNETES}unschedulable"
_NOT_READY = (f"{_OF_KUBERNETES}not-ready", f"{_OF_KUBERNETES}unreachable")
_MIG = "nvidia.com/mig-"
_NOT_FOUND = re.compile(r'"[^"]+" not found')


@dataclass(frozen=True)
class NodeVerdict:
    """The reason why a node does not take the pod.

    `reason` is a key of REASONS, and `text` explains the reason with numbers.
    """

    node: str
    reason: str
    text: str


def verdicts(cluster: ClusterSnapshot, pod: WholePod, request: MemoryRequest) -> tuple[NodeVerdict, ...]:
    """Returns a verdict on each node of the pools that share memory.

    The verdicts begin with the node that is closest to taking the pod. If the pod fits on a node, the reason in the
    verdict is `untried`.
    """
    shared = [
        name
        for name in cluster.devices
        if any(each.matches(map_at(cluster.nodes[name], "metadata", "labels")) for each in cluster.ledger.shared_pools)
    ]
    found = {name: next(_by_node(cluster, pod, request, name), None) for name in shared}
    judged = _by_cache(cluster, pod, request, [name for name, verdict in found.items() if verdict is None])
    verdicts = [NodeVerdict(name, *(verdict or judged[name])) for name, verdict in found.items()]
    return tuple(sorted(verdicts, key=lambda each: (-NEARNESS.index(each.reason), each.node)))


def closed_nodes(cluster: ClusterSnapshot) -> Mapping[str, str]:
    """Returns the reason why a node takes no new pod of its pool, for each node of a pool that takes none.

    We expect of a new pod the tolerations of the pods that run: of each pod with a GPU, and of the platform's agents.
    A pod from a queue gets the tolerations of its ResourceFlavor, so a node with whole devices is closed only by a
    taint of Kubernetes.
    """
    seen = [
        toleration
        for pod in cluster.pods
        if pod.request(GPU) or pod.request(cluster.ledger.names.gpumem) or pod.labels.get(LABEL_PART_OF) == PROJECT
        for toleration in maps_at(pod.spec, "tolerations")
        if toleration.get("key")
    ]
    always = [{"key": key, "operator": "Exists"} for key in (GPU_TAINT, cluster.ledger.names.gpumem)]
    usual = {"tolerations": [*always, *seen]}

    def of_pool(name: str) -> Callable[[Object], bool]:
        whole_devices = _pool_of(cluster, name) is Sharing.WHOLE
        return lambda taint: (
            not str(taint.get("key")).startswith(_OF_KUBERNETES) and (whole_devices or tolerates(usual, taint))
        )

    found = {name: next(_obstacles(cluster, name, of_pool(name)), None) for name in cluster.devices}
    return {name: obstacle[1] for name, obstacle in found.items() if obstacle}


def advertised_mib(cluster: ClusterSnapshot, name: str) -> int:
    """Returns the MiB of GPU memory that the node advertises."""
    return whole(map_at(cluster.nodes[name], "status", "allocatable").get(cluster.ledger.names.gpumem, "0"))


def held_mib(cluster: ClusterSnapshot, name: str) -> int:
    """Returns the MiB of GPU memory that pods on the node hold, also of pods without a known device."""
    return sum(each.request.total_mib for each in cluster.cache.node(name).pods.values())


def _pool_of(cluster: ClusterSnapshot, name: str) -> Sharing | None:
    labels = map_at(cluster.nodes[name], "metadata", "labels")
    mine = [pool.sharing for pool in cluster.ledger.pools if pool.matches(labels)]
    return mine[0] if len(mine) == 1 else None


def _is_ready(node: Object) -> bool:
    return bool(condition(node, "Ready").get("status") == "True")


def _by_cache(
    cluster: ClusterSnapshot, pod: WholePod, request: MemoryRequest, nodes: Sequence[str]
) -> Mapping[str, tuple[str, str]]:
    """Asks the cache once about all nodes, because each question counts the absent seats of all nodes."""
    label = pod.seat_label(cluster.ledger.names)
    seats = seats_for(cluster.ledger, pod.namespace, request, map_at(pod.spec, "nodeSelector"), label)
    pools, now = frozenset(seat.pool for seat in seats), time.monotonic()
    entitlement = Entitlement(pod.priority, pools, pod.namespace, label)
    with cluster.cache.search(pod.uid, request, None, now, entitlement) as found:
        refusing = frozenset(nodes) - found.feasible(by_ledger=False)
    fits = cluster.cache.fit(pod.uid, request, refusing, now, entitlement)
    while fits.nodes:  # the pod fits there as soon as absent seats get their memory elsewhere
        refusing -= {*fits.nodes}
        fits = cluster.cache.fit(pod.uid, request, refusing, now, entitlement)
    return {
        name: _by_device(cluster.devices[name].pool in pools, name, fits)
        if name in refusing
        else ("untried", "has room by now")
        for name in nodes
    }


def rules_out(cluster: ClusterSnapshot, pod: WholePod, name: str) -> str | None:
    """Returns the reason why the node does not take this pod, however small its requests are, or None."""
    return next((text for _, text in _ruled_out(cluster, pod, name)), None)


def _ruled_out(cluster: ClusterSnapshot, pod: WholePod, name: str) -> Iterator[tuple[str, str]]:
    labels = map_at(cluster.nodes[name], "metadata", "labels")
    if lacking := [f"{k}={v}" for k, v in map_at(pod.spec, "nodeSelector").items() if labels.get(k) != v]:
        yield "selector", f"has not the label {', '.join(lacking)}"
    required = map_at(pod.spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = maps_at(required, "nodeSelectorTerms")
    if terms and not any(_selects(term, labels, name) for term in terms):
        yield "selector", "is ruled out by the pod's node affinity"
    yield from _obstacles(cluster, name, lambda taint: tolerates(pod.spec, taint))


def _by_node(cluster: ClusterSnapshot, pod: WholePod, request: MemoryRequest, name: str) -> Iterator[tuple[str, str]]:
    yield from _ruled_out(cluster, pod, name)
    advertised, free = advertised_mib(cluster, name), advertised_mib(cluster, name) - held_mib(cluster, name)
    if request.total_mib > advertised:
        yield "too-large", f"advertises {advertised} MiB in all, not {request.total_mib}"
    if request.total_mib > free:
        yield "node-sum", f"{free} of its {advertised} MiB are free, not {request.total_mib}"


def _selects(term: Object, labels: Mapping[str, str], name: str) -> bool:
    """Source: nodeSelectorTerm in k8s.io/component-helpers scheduling/corev1/nodeaffinity. An empty term selects no
    node."""
    fields = maps_at(term, "matchFields")
    expressions = [(each, labels) for each in maps_at(term, "matchExpressions")]
    expressions += [(each, {"metadata.name": name}) for each in fields]
    return bool(expressions) and all(_holds(each, of) for each, of in expressions)


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(str(expression.get("key"))), expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    try:
        number, limit = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > limit if expression.get("operator") == "Gt" else number < limit


def _obstacles(cluster: ClusterSnapshot, name: str, tolerated: Callable[[Object], bool]) -> Iterator[tuple[str, str]]:
    """Yields the reasons why the node takes no pod with these tolerations, however small the pod is."""
    node, names = cluster.nodes[name], cluster.ledger.names
    if map_at(node, "spec").get("unschedulable") and not tolerated({"key": _CORDON, "effect": _REPELLENT[0]}):
        yield "cordoned", "is cordoned"
    if not _is_ready(node):
        yield "not-ready", f"is not ready: {condition(node, 'Ready').get('message') or 'its kubelet has not reported'}"
    for taint in maps_at(map_at(node, "spec"), "taints"):
        repels = taint.get("effect") in _REPELLENT and taint.get("key") not in (_CORDON, *_NOT_READY)
        if repels and not tolerated(taint):
            yield "taint", f"has the taint {taint.get('key')}={taint.get('value', '')}:{taint.get('effect')}"
    if _pool_of(cluster, name) is Sharing.WHOLE:
        allocatable = map_at(node, "status", "allocatable")
        if not any(whole(n) for resource, n in allocatable.items() if resource == GPU or resource.startswith(_MIG)):
            yield "capacity", "advertises no GPU"
        return
    if unusable := cluster.devices[name].unusable:
        yield "unusable", unusable
    if not advertised_mib(cluster, name):
        yield "capacity", f"advertises no {names.gpumem}"


def _by_device(seated: bool, name: str, fits: Answer) -> tuple[str, str]:
    if name in fits.hopeless:
        return "too-large", fits.hopeless[name]
    text = fits.refused[name]
    holders = [str(holder) for short in fits.short if short.node == name for holder in short.holders]
    over = f"; over their budgets there: {', '.join(holders)}" if holders else ""
    if REFUSED_AS_MEASURED not in text:
        return "device", text
    return "held" if seated else "measured", text + over


def unjudged(message: str, gpumem: str) -> tuple[str, ...]:
    """Returns the reasons in kube-scheduler's message that `verdicts` does not judge.

    A reason that begins with a number is about so many nodes. Any other reason is about the pod itself.
    """
    head = message.partition(" preemption: ")[0]
    _, listed, reasons = head.partition(" nodes are available: ")
    parts = re.split(r"(?:^|, )(?=\d+ )", reasons.rstrip(".")) if listed else [head]
    return tuple(part for part in parts if part and not any(text in part for text, _ in _known(gpumem)))


def _known(gpumem: str) -> Sequence[tuple[str, str]]:
    """Returns the texts in kube-scheduler's messages that `verdicts` judges, with their reasons, the nearest first."""
    return (
        ("the seat is held back", "held"),
        (REFUSED_AS_MEASURED, "measured"),
        ("MiB free", "device"),
        (f"Insufficient {gpumem}", "node-sum"),
        ("MiB to share", "too-large"),
        ("were unschedulable", "cordoned"),
        ("untolerated taint", "taint"),
        ("didn't match Pod's node affinity/selector", "selector"),
    )


def reason_of(unjudged: Sequence[str]) -> str:
    """Returns the reason of a pod that kube-scheduler refuses for reasons that `verdicts` does not judge."""
    if all("Insufficient " in each for each in unjudged):
        return "resources"
    return "missing" if any(_NOT_FOUND.search(each) for each in unjudged) else "refused"


def reason_in_message(message: str, gpumem: str) -> str:
    """Returns the reason in kube-scheduler's message.

    It serves for pods that `verdicts` does not judge, and for users without the right to read other pods.
    """
    known = [reason for text, reason in _known(gpumem) if text in message]
    others = unjudged(message, gpumem)
    if known and (known[0] in ("held", "measured", "device") or not others):
        return known[0]
    return reason_of(others)
