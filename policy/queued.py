"""Judges the GPU work that Kueue queues: Jobs, JobSets, Ray clusters and the other kinds of the stack's frameworks.

Work that its queue can never admit would stay pending. Only this module reports it before somebody submits it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from policy.finding import Finding
from policy.graph import KUEUE, Graph, framework_in, is_gpumem, job_of, queue_of, requested_resources
from policy.objects import Object, text_at
from policy.unknown import is_unknown
from tenancy import names, reach
from tenancy.dispatch import dispatch_quotas, promises
from tenancy.frameworks import FrameworkName
from tenancy.ledger import Ledger
from tenancy.podsets import PodSet, pod_sets
from tenancy.quantity import whole
from tenancy.workload import map_at, maps_at

CLUSTER_QUEUE, LOCAL_QUEUE = f"ClusterQueue.{KUEUE}", f"LocalQueue.{KUEUE}"
PRIORITY = f"WorkloadPriorityClass.{KUEUE}"


def obstacles_to_start(graph: Graph, work: Object) -> Iterator[Finding]:
    """Yields the reasons why Kueue would never start the work. The rule `admission` reports work without a queue.

    A queue that the ledger does not know promises no GPUs. A ledger of an older version contains no queues.
    """
    ledger, framework = graph.ledger, framework_in(graph.ledger, work)
    name = queue_of(ledger, work) if framework else None
    if ledger is None or framework is None or name is None or not uses_gpus(ledger, work, framework):
        return
    queues = {queue.name: queue.queue for queue in ledger.local_queues if queue.tenant == work.namespace}
    if name in queues:
        yield from _of_queue(ledger, work, queues[name], _sets(work, framework))
    elif queues and graph.named(LOCAL_QUEUE, name, work.namespace) is None:
        yield Finding(
            f"{work}: there is no LocalQueue {name} in {work.namespace}: it would wait for ever; name one of "
            f"{', '.join(sorted(queues))}",
            work.urn,
        )


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


def _of_queue(ledger: Ledger, work: Object, queue: str, sets: Sequence[PodSet]) -> Iterator[Finding]:
    yield from _fits_a_cluster(ledger, work, queue, sets)
    quotas = [quota for quota in ledger.quotas if quota.holder == queue]
    covered = sorted({quota.resource for quota in quotas})
    for resource in sorted({each for pods in sets for each in requested_resources(map_at(pods.template, "spec"))}):
        if resource in covered:
            most = [quota.most for quota in quotas if quota.resource == resource]
            yield from _is_within_reach(work, sets, queue, resource, most)
        elif reach.is_gpu_resource(resource, ledger.names) or is_gpumem(resource):  # A queue promises GPUs alone.
            yield Finding(
                f"{work}: asks for {resource}, which ClusterQueue {queue} does not cover; ask for "
                f"{' or '.join(covered)}, or add it to queues.cluster_queues.{queue}.quotas",
                work.urn,
            )


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
    work: Object, sets: Sequence[PodSet], queue: str, resource: str, most: Sequence[int]
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


def quotas_of(queue: Object, resource: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the quotas of a resource, each with the name of its flavor."""
    for group in maps_at(queue.manifest, "spec", "resourceGroups"):
        for flavor in maps_at(group, "flavors"):
            for quota in maps_at(flavor, "resources"):
                if quota.get("name") == resource:
                    yield text_at(flavor, "name"), quota


def wrong_priority_class(graph: Graph, work: Object) -> Iterator[Finding]:
    """Reports work with a WorkloadPriorityClass that is another tenant's, or that nobody declares. Kueue never starts
    work with an undeclared class."""
    framework, ledger = framework_in(graph.ledger, work), graph.ledger
    if framework is None or ledger is None or is_unknown(work.namespace):
        return
    queues = work.namespace in ledger.queue_tenants
    if not queues and not uses_gpus(ledger, work, framework):
        return
    called = text_at(map_at(job_of(work), "metadata", "labels"), names.KUEUE_PRIORITY_LABEL)
    known, of = sorted(ledger.workload_priorities), ledger.priority_tenants
    own = [each for each in known if work.namespace in of.get(each, (work.namespace,))]
    instead = f"name {' or '.join(own)}, or " if own else ""
    if queues and called in of and work.namespace not in of[called]:
        yield Finding(
            f"{work}: WorkloadPriorityClass {called} is for {', '.join(of[called]) or 'no tenant'}; {instead}add "
            f"{work.namespace} to queues.workload_priorities.{called}.tenants of the platform's stack",
            work.urn,
        )
    elif known and called and called not in known and not graph.named(PRIORITY, called):
        message = f"{work}: there is no WorkloadPriorityClass {called}; {instead}"
        yield Finding(f"{message}add queues.workload_priorities.{called}", work.urn)
