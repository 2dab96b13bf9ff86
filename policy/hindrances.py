"""Warnings about what breaks no promise in the preview, and will hinder the agents or a workload later."""

from collections.abc import Iterator
from typing import Any

from policy.graph import KUEUE, Graph, framework_in, queue_of
from policy.objects import Object, text_at, texts_at
from policy.queued import moved_label, uses_gpus
from tenancy import names
from tenancy.host_memory.pool import Workload
from tenancy.ledger import Ledger
from tenancy.quantity import parse, whole
from tenancy.units import MIB
from tenancy.workload import map_at, maps_at, max_pods, pod_template, value_or

# The driver, the CUDA runtime and a context without any data take more than this on every card that we know.
_LEAST_SEAT_MIB = 100
_COUNTED_ONCE = ("cpu", "memory")


def of_seats(graph: Graph) -> Iterator[str]:
    """Yields a warning for each seat that is too small for any program, as if the operator had meant GiB."""
    for seat in graph.ledger.seats if graph.ledger and graph.ledger_objects else ():
        if 0 < seat.gpumem_mib < _LEAST_SEAT_MIB:
            yield (
                f"residents.{seat.name}.gpumem_mib is {seat.gpumem_mib}, and no CUDA context fits into so few MiB; if "
                f"you meant GiB, write {seat.gpumem_mib * 1024}"
            )


def of_object(graph: Graph, found: Object) -> Iterator[str]:
    """Yields the warnings about one object. Raises UNREADABLE."""
    yield from _gated(graph.ledger, found)
    yield from _held_back(graph.ledger, found)
    if found.qualified_kind == f"ClusterQueue.{KUEUE}":
        yield from _uncovered(graph, found)
    elif found.qualified_kind == "PodDisruptionBudget.policy":
        yield from _unevictable(graph, found)
    elif found.qualified_kind == "VerticalPodAutoscaler.autoscaling.k8s.io":
        yield from _resized(graph, found)
    elif found.kind in ("LimitRange", "ResourceQuota"):
        yield from _limited(graph, found)


def _gated(ledger: Ledger | None, found: Object) -> Iterator[str]:
    """Yields a warning for an on-demand workload that the program declares with replicas. The rules accept an on-demand
    workload with replicas. If the program ignores changes of `replicas`, the engine shows the number that the gate has
    set."""
    if found.qualified_kind != "Deployment.apps":
        return
    gated = {workload.name for workload in ledger.on_demand if workload.tenant == found.namespace} if ledger else ()
    replicas = whole(value_or(map_at(found.manifest, "spec"), "replicas", 0))
    if replicas and not {found.name, found.labels.get(names.LABEL_NAME)}.isdisjoint(gated):
        yield (
            f"{found} declares {replicas} replicas, and the demand gate starts it: each rollout would start it without "
            "enough memory; write replicas: 0, with ignore_changes of spec.replicas"
        )


def _held_back(ledger: Ledger | None, found: Object) -> Iterator[str]:
    """Yields a warning for work without GPUs that names no queue in the namespace of a queue tenant. The rule
    `admission` reports work with GPUs."""
    framework = framework_in(ledger, found)
    if ledger is None or ledger.admission is None or "admission" in ledger.observes or framework is None:
        return
    named = found.namespace not in ledger.queue_tenants or queue_of(ledger, found) is not None
    if not named and not uses_gpus(ledger, found, framework):
        give = f"give it the label {names.KUEUE_QUEUE_LABEL}, or declare a LocalQueue there with name: default"
        yield (
            f"{found} names no queue, and Kueue holds back all work of {found.namespace}; {moved_label(found) or give}"
        )


def _uncovered(graph: Graph, queue: Object) -> Iterator[str]:
    """Yields a warning for a queue without a quota for CPU or host memory, if another queue has one. Kueue counts a
    resource for all queues or for none."""
    counted = {each for other in graph.of(f"ClusterQueue.{KUEUE}") for each in _covered(other)}
    if missing := [each for each in _COUNTED_ONCE if each in counted and each not in _covered(queue)]:
        yield (
            f"{queue} has no quota for {' and '.join(missing)}, which Kueue counts because another queue has one: it "
            f"would never start a Job that asks for it; add it to queues.cluster_queues.{queue.name}.quotas"
        )


def _covered(queue: Object) -> set[str]:
    groups = maps_at(queue.manifest, "spec", "resourceGroups")
    return {each for group in groups for each in texts_at(group, "coveredResources")}


def _unevictable(graph: Graph, budget: Object) -> Iterator[str]:
    """Yields a warning for a budget that lets nobody evict a pod of a tenant, and that the watchdog overrules."""
    if graph.ledger is None or budget.namespace not in graph.ledger.tenants_by_name:
        return
    spec = map_at(budget.manifest, "spec")
    unavailable, available = value_or(spec, "maxUnavailable", None), value_or(spec, "minAvailable", None)
    if str(unavailable) in ("0", "0%", "0.0") or str(available) == "100%" or _keeps_all(graph, budget, available):
        yield (
            f"{budget} lets nobody evict its pods. It does not protect a pod that is over its budget of GPU memory: "
            "while its device lacks memory, an armed watchdog deletes the pod after the refused eviction; write "
            "maxUnavailable: 1"
        )


def _keeps_all(graph: Graph, budget: Object, available: Any) -> bool:
    if available is None or str(available).endswith("%"):
        return False
    wanted = map_at(budget.manifest, "spec", "selector", "matchLabels")
    pods = 0
    for workload in graph.workloads:
        labels = map_at(pod_template(workload.manifest) or {}, "metadata", "labels")
        if workload.namespace == budget.namespace and wanted and wanted.items() <= labels.items():
            pods += max_pods(workload.manifest, nodes=1)
    return 0 < pods <= whole(available)


def _resized(graph: Graph, scaler: Object) -> Iterator[str]:
    target = text_at(map_at(scaler.manifest, "spec", "targetRef"), "name")
    mode = text_at(map_at(scaler.manifest, "spec", "updatePolicy"), "updateMode") or "Auto"
    if mode != "Off" and (scaler.namespace, target) in graph.promised:
        yield (
            f"{scaler} changes the requests of {target} (updateMode {mode}), to which its promise is fitted, and "
            "restarts its pods; write updateMode: Off"
        )


def _limited(graph: Graph, found: Object) -> Iterator[str]:
    """Yields a warning for a limit of host memory below what a memory pool gives a protected workload."""
    pools = graph.host_memory.pools if graph.host_memory else ()
    for pool in pools:
        for workload in pool.workloads:
            if workload.tenant == found.namespace:
                yield from (
                    f"{found} allows {what}, and memory_pools.{pool.name}.workloads.{workload.name} has {has}, so its "
                    "pods would be refused; raise it"
                    for what, has in _below(found, workload)
                )


def _below(found: Object, workload: Workload) -> Iterator[tuple[str, str]]:
    given = {"limits.memory": workload.limit_mib, "requests.memory": workload.request_mib}
    for key, has in given.items():
        amount = value_or(map_at(found.manifest, "spec", "hard"), key, None)
        if amount is not None and parse(amount) < has * MIB:
            yield f"{key} {amount}", f"{has} MiB"
    for limit in maps_at(found.manifest, "spec", "limits"):
        most = value_or(map_at(limit, "max"), "memory", None)
        if most is not None and parse(most) < workload.limit_mib * MIB:
            yield f"at most {most} of memory", f"limit_mib {workload.limit_mib}"
        ratio = value_or(map_at(limit, "maxLimitRequestRatio"), "memory", None)
        if ratio is not None and parse(ratio) * workload.request_mib < workload.limit_mib:
            yield f"a limit of {ratio} requests", f"{workload.limit_mib} MiB for {workload.request_mib}"
