"""Judges the GPU work that Kueue queues: Jobs, JobSets, Ray clusters and the other kinds of the stack's frameworks.

Work that its queue can never admit would stay pending. Only this module reports it before somebody submits it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from policy.finding import Finding
from policy.graph import KUEUE, Graph, framework_in, is_gpumem, job_of, queue_of, requested_resources
from policy.objects import Object, text_at, texts_at
from policy.unknown import is_unknown
from tenancy import names, reach
from tenancy.dispatch import dispatch_quotas, promises
from tenancy.frameworks import FrameworkName
from tenancy.ledger import Ledger
from tenancy.podsets import PodSet, pod_sets
from tenancy.quantity import whole
from tenancy.workload import map_at, maps_at, value_or

CLUSTER_QUEUE, LOCAL_QUEUE = f"ClusterQueue.{KUEUE}", f"LocalQueue.{KUEUE}"
PRIORITY = f"WorkloadPriorityClass.{KUEUE}"


def obstacles_to_start(graph: Graph, work: Object) -> Iterator[Finding]:
    """Yields the reasons why Kueue would never start the work. The rule `admission` reports work without a queue."""
    framework = framework_in(graph.ledger, work)
    name = queue_of(graph.ledger, work) if framework else None
    if framework is None or name is None or not uses_gpus(graph.ledger, work, framework):
        return
    found = graph.named(LOCAL_QUEUE, name, work.namespace)
    target = graph.named(CLUSTER_QUEUE, text_at(map_at(found.manifest, "spec"), "clusterQueue")) if found else None
    if target is not None:
        yield from _of_graph(graph, work, target, _sets(work, framework))
        yield from _fits_a_cluster(graph.ledger, work, target.name, _sets(work, framework)) if graph.ledger else ()
    elif graph.ledger is not None and found is None and work.namespace in graph.ledger.queue_tenants:
        yield from _of_ledger(graph.ledger, work, name, framework)


def moved_label(work: Object) -> str:
    """Returns the change for an object with the queue's label in a place where Kueue does not read it, or ""."""
    home = "spec.jobTemplate.metadata.labels" if work.kind == "CronJob" else "metadata.labels"
    wrong = next((path for path in _labelled(work.manifest, "") if path != home), None)
    return f"move the label {names.KUEUE_QUEUE_LABEL} from {wrong} to {home} of the {work.kind}" if wrong else ""


def _labelled(value: Any, path: str) -> Iterator[str]:
    """Yields the path of each map `labels` with the queue's label."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for part, item in inner:
        if is_unknown(item):
            continue
        there = f"{path}.{part}".lstrip(".")
        if part == "labels" and isinstance(item, Mapping) and names.KUEUE_QUEUE_LABEL in item:
            yield there
        yield from _labelled(item, there)


def uses_gpus(ledger: Ledger | None, work: Object, framework: FrameworkName) -> bool:
    """Returns True if a pod of the work reaches a GPU."""
    domain = ledger.names if ledger else names.Names("")
    specs = [map_at(each.template, "spec") for each in _sets(work, framework)]
    return any(any(reach.routes(s, domain)) or any(map(is_gpumem, requested_resources(s))) for s in specs)


def _sets(work: Object, framework: FrameworkName) -> list[PodSet]:
    """Returns the pod sets with which Kueue starts the object.

    If a Job has the annotation for partial admission, Kueue can start the Job with fewer pods than its parallelism.
    """
    manifest = job_of(work)
    sets = pod_sets(manifest, framework)
    fewest = text_at(map_at(manifest, "metadata", "annotations"), names.KUEUE_FEWEST_PODS)
    is_a_job = framework is FrameworkName.JOB
    return [replace(each, count=whole(fewest)) for each in sets] if fewest and is_a_job else sets


def _of_graph(graph: Graph, work: Object, queue: Object, sets: Sequence[PodSet]) -> Iterator[Finding]:
    covered = {
        resource
        for group in maps_at(queue.manifest, "spec", "resourceGroups")
        for resource in texts_at(group, "coveredResources")
    }
    domain = graph.ledger.names if graph.ledger else names.Names("")
    for resource in _resources(sets):
        if not reach.is_gpu_resource(resource, domain) and not is_gpumem(resource):
            continue  # A queue promises GPUs alone.
        if resource not in covered:
            yield Finding(
                f"{work}: asks for {resource}, which {queue} does not cover; ask for {' or '.join(sorted(covered))}, "
                f"or add it to queues.cluster_queues.{queue.name}.quotas",
                work.urn,
            )
        else:
            most = [_most(queue, quota) for _, quota in quotas_of(queue, resource)]
            yield from _is_within_reach(work, sets, queue.name, resource, most)


def _of_ledger(ledger: Ledger, work: Object, name: str, framework: FrameworkName) -> Iterator[Finding]:
    """Judges an object for a queue that is in the ledger and not in the graph. A ledger of an older version contains no
    queues."""
    queues = {queue.name: queue.queue for queue in ledger.local_queues if queue.tenant == work.namespace}
    if queues and name not in queues:
        yield Finding(
            f"{work}: there is no LocalQueue {name} in {work.namespace}: it would wait for ever; name one of "
            f"{', '.join(sorted(queues))}",
            work.urn,
        )
    elif queues:
        sets = _sets(work, framework)
        yield from _fits_a_cluster(ledger, work, queues[name], sets)
        for resource in _resources(sets):
            held = (queues[name], resource)
            most = [quota.most for quota in ledger.quotas if (quota.holder, quota.resource) == held]
            if most:
                yield from _is_within_reach(work, sets, queues[name], resource, most)


def _fits_a_cluster(ledger: Ledger, work: Object, queue: str, sets: Sequence[PodSet]) -> Iterator[Finding]:
    """Reports an object that asks for more than any worker cluster of its queue promises. Kueue dispatches an object as
    a whole."""
    for quota in dispatch_quotas(ledger):
        asked = sum(each.request(quota.resource) for each in sets)
        promised = promises(ledger, quota.resource)
        most = max(promised.get(name, 0) for name in quota.clusters)
        if quota.queue == queue and most < asked <= quota.most:
            shown = ", ".join(f"{name} {promised.get(name, 0)}" for name in quota.clusters)
            yield Finding(
                f"{work}: asks for {asked} {quota.resource} at once, and no worker cluster of ClusterQueue {queue} "
                f"promises so much ({shown}): it would never start; lower its parallelism or requests",
                work.urn,
            )


def _is_within_reach(
    work: Object, sets: Sequence[PodSet], queue: str, resource: str, most: Sequence[float]
) -> Iterator[Finding]:
    """Reports an object that asks for more than its queue can ever hand out. Kueue admits an object as a whole, and
    gives each pod set one flavor. `most` has the maximum of each flavor."""
    asked = {each.name: each.request(resource) for each in sets}
    if sum(asked.values()) <= sum(most, 0) and max(asked.values()) <= max(most, default=0):
        return
    shown = f"{sum(asked.values())} {resource} at once"
    if len(sets) == 1:
        shown += f" ({sets[0].count} x {asked[sets[0].name] // max(sets[0].count, 1)})"
    else:
        shown += f" ({', '.join(f'{name} {amount}' for name, amount in asked.items() if amount)})"
    yield Finding(
        f"{work}: asks for {shown}, ClusterQueue {queue} may hand out {max(most, default=0)} at most: it would never "
        f"start; lower its parallelism or requests, or raise queues.cluster_queues.{queue}.quotas",
        work.urn,
    )


def _resources(sets: Sequence[PodSet]) -> list[str]:
    return sorted({resource for each in sets for resource in requested_resources(map_at(each.template, "spec"))})


def quotas_of(queue: Object, resource: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the quotas of a resource, each with the name of its flavor."""
    for group in maps_at(queue.manifest, "spec", "resourceGroups"):
        for flavor in maps_at(group, "flavors"):
            for quota in maps_at(flavor, "resources"):
                if quota.get("name") == resource:
                    yield text_at(flavor, "name"), quota


def _most(queue: Object, quota: Mapping[str, Any]) -> float:
    """Returns the largest amount of a resource that the queue may give to Jobs. In a cohort, a quota without a
    borrowing limit has no maximum."""
    spec = map_at(queue.manifest, "spec")
    in_cohort = bool(text_at(spec, "cohortName") or text_at(spec, "cohort"))  # v1beta2, v1beta1
    borrowing = value_or(quota, "borrowingLimit", None)
    if borrowing is None and in_cohort:
        return math.inf
    return whole(value_or(quota, "nominalQuota", 0)) + whole(borrowing or 0)


def undeclared_priority_class(graph: Graph, work: Object) -> Iterator[Finding]:
    """Reports an object with an undeclared WorkloadPriorityClass. Kueue never starts an object with an undeclared
    class."""
    framework = framework_in(graph.ledger, work)
    if framework is None or not uses_gpus(graph.ledger, work, framework):
        return
    called = text_at(map_at(job_of(work), "metadata", "labels"), names.KUEUE_PRIORITY_LABEL)
    known = sorted(graph.ledger.workload_priorities) if graph.ledger else []
    if not called or called in known or not (known or graph.of(PRIORITY)) or graph.named(PRIORITY, called):
        return
    instead = f"name {' or '.join(known)}, or " if known else ""
    message = f"{work}: there is no WorkloadPriorityClass {called}; {instead}add queues.workload_priorities.{called}"
    yield Finding(message, work.urn)
