"""Finds the other programs that hand out parts of a cluster's GPUs, and those that scale its workloads. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpumem.init.nodes import GpuNode
from gpumem.pods import WholePod, Workload
from gpumem.users import workload_of
from tenancy import reach
from tenancy.names import SCHEDULER_NAME, Names
from tenancy.quantity import QuantityError
from tenancy.sharers import asked_of_sharer, other_scheduler, program_of, sharers_of_pod
from tenancy.workload import ShapeError, map_at, text_at

_SHOWN = 3
# Labels and annotations by which a controller marks the pods whose number it changes.
_SCALERS = {
    "serving.kserve.io/": "KServe",
    "serving.knative.dev/": "Knative",
    "scaledobject.keda.sh/": "KEDA",
    "scaledjob.keda.sh/": "KEDA",
    "sablier.": "Sablier",
}


@dataclass(frozen=True)
class Sharing:
    """The pods of other sharing programs, and those that only such a program gives a part of a GPU. No request gives a
    whole device on the nodes `nodes`.
    """

    sentences: tuple[str, ...]
    pods: frozenset[str]
    nodes: frozenset[str]


def sharing_of(pods: Iterable[WholePod], nodes: Sequence[GpuNode], names: Names) -> Sharing:
    """Returns what other programs hand out of these nodes' GPUs."""
    shown: dict[str, list[str]] = {}
    theirs, on, taken = set(), set(), {}
    for node in nodes:
        for name, what in node.sharers:
            shown.setdefault(name, []).append(f"node {node.name} has {what}")
    for pod in pods:
        try:
            name, evidence, asks_for_parts = _judged(pod, names)
        except (QuantityError, ShapeError):
            continue  # gpu_users names the pod
        for program, what in evidence:
            shown.setdefault(program, []).append(what)
        if name or asks_for_parts:
            theirs.add(pod.uid)
            on.add(pod.node or "")
        if asks_for_parts and not name:
            taken[workload_of(pod)] = (evidence[0][0], *asked_of_sharer(pod.metadata, pod.spec))
    sentences = [_sentence(name, [*dict.fromkeys(found)]) for name, found in sorted(shown.items())]
    sentences += [_without_seat(workload, *found) for workload, found in sorted(taken.items())]
    return Sharing(tuple(sentences), frozenset(theirs), frozenset(on))


def _judged(pod: WholePod, names: Names) -> tuple[str, list[tuple[str, str]], bool]:
    """Returns the program that the pod is a part of, what shows a program, and whether the pod gets a part of a GPU by
    such a program and by no resource of NVIDIA."""
    where = str(workload_of(pod))
    if name := program_of(pod.namespace, pod.metadata, pod.spec):
        return name, [(name, where)], False
    evidence = [(name, f"{where} has {what}") for name, what in sharers_of_pod(pod.metadata, pod.spec, names.domain)]
    routes = list(reach.routes(pod.spec, names))
    if not evidence and routes and (scheduler := other_scheduler(pod.spec, SCHEDULER_NAME)):
        evidence = [(f"the scheduler {scheduler}", where)]
    by_requests = any(f"asks for {part}" in route for route in routes for part in (reach.GPU_RESOURCES, names.gpumem))
    return "", evidence, bool(evidence) and not by_requests and not _only_queued(evidence)


def _only_queued(evidence: Sequence[tuple[str, str]]) -> bool:
    return all("has schedulerName " in what for _, what in evidence)


def _sentence(name: str, found: Sequence[str]) -> str:
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (
        f"{name} hands out the same cards ({', '.join(found[:_SHOWN])}{more}), and neither knows of the other's "
        "promises; take its parts off the nodes of these pools, or leave these nodes out, before mode is enforce"
    )


def _without_seat(workload: Workload, name: str, mib: int, field: str) -> str:
    asked = f"{mib} MiB by {field}" if mib else "a part of a card"
    seat = f" with gpumem_mib: {mib}" if mib else ""
    return (
        f"{workload} has no seat: {name} gives it {asked}; once its pods ask for gpumem instead, add it to "
        f"residents{seat}"
    )


def scaler_of(workload: Workload, metadata: Mapping[str, object], autoscalers: Iterable[Mapping[str, object]]) -> str:
    """Returns what changes the number of the workload's pods by itself, or ""."""
    keys = [*map_at(metadata, "labels"), *map_at(metadata, "annotations")]
    for prefix, name in _SCALERS.items():
        if any(key.startswith(prefix) for key in keys):
            return name
    for each in autoscalers:
        target, found = map_at(each, "spec", "scaleTargetRef"), map_at(each, "metadata")
        kind = text_at(target, "kind") or "Deployment"
        if (found.get("namespace"), kind, target.get("name")) == (workload.namespace, workload.kind, workload.name):
            return f"{each.get('kind') or 'HorizontalPodAutoscaler'} {found.get('name')}"
    return ""
