"""Rules on the nodes of a memory pool: the GPU seats of the pool's workloads, and pods that the pool does not
declare."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policy.finding import Finding, judge_each
from policy.graph import Graph
from policy.objects import Object, text_at
from policy.rule import MAIN, Example, a_deployment, memory_resources, rule
from policy.rules.host_memory import member_of
from policy.unknown import UnprovenError
from tenancy import names
from tenancy.host_memory.pool import Disposable, HostMemoryPool, Workload
from tenancy.host_memory.proof import victims
from tenancy.ledger import Ledger
from tenancy.quantity import parse
from tenancy.units import MIB
from tenancy.workload import chooses, containers_of, map_at, maps_at, may_run_on, pod_template, value_or


@rule("memory-gpu", Example("admission.tenant_priorities.inference", "tier-2-gpu", "homelab-critical"))
def gpu_seats(graph: Graph) -> Iterator[Finding]:
    """If a workload of a memory pool also has a GPU seat, the same node can belong to the memory pool and the GPU's
    pool. Admission sets the PriorityClass that the memory pool declares."""
    for pool in graph.host_memory.pools if graph.host_memory else ():
        for workload in pool.workloads:
            if graph.ledger is not None and workload.name in {s.name for s in graph.ledger.seats_of(workload.tenant)}:
                yield from _nodes(graph.ledger, pool, workload)
                yield from _class(graph, pool, workload)


def _nodes(ledger: Ledger, pool: HostMemoryPool, workload: Workload) -> Iterator[Finding]:
    (seat,) = (seat for seat in ledger.seats_of(workload.tenant) if seat.name == workload.name)
    gpus = ledger.pool(seat.pool)
    for label, value in pool.node_selector.items():
        other = gpus.node_selector.get(label, value) if gpus else value
        if other != value:
            yield Finding(
                f"{pool.name}: {workload.name} has a seat on pools.{seat.pool}, whose nodes have {label} "
                f"{other}, those of memory_pools.{pool.name} {value}: no node is both; move "
                f"residents.{seat.name} or the workload"
            )


def _class(graph: Graph, pool: HostMemoryPool, workload: Workload) -> Iterator[Finding]:
    terms = graph.ledger.admission if graph.ledger else None
    stamped = terms.priority_of(workload.tenant) if terms and graph.ledger_objects else workload.priority
    if stamped != workload.priority:
        yield Finding(
            f"{pool.name}: {workload.name} has a GPU seat, and admission sets {stamped} on its pods; the memory pool "
            f"knows it by {workload.priority}, and the API server would deny its pods; write "
            f"admission.tenant_priorities.{workload.tenant}: {workload.priority}"
        )


@rule(
    "memory-strangers",
    Example(
        f"{MAIN}.resources",
        memory_resources("1Gi", "2Gi"),
        memory_resources("1Gi", "1Gi"),
        of=a_deployment("web", "web", nodeSelector={names.LABEL_HOSTNAME: "node-4"}),
    ),
)
def strangers(graph: Graph) -> Iterator[Finding]:
    """A workload that chooses the nodes of a memory pool does not use more host memory there than it requests.

    A workload chooses the nodes of a memory pool by name, by one of the pool's labels, or by a toleration of the pool's
    taint. The pool's own workloads may use more host memory than they request. A pod without a request may use any
    amount, because the kernel kills the pod early, like a disposable pod. The rule does not judge a pod that may run on
    any node.
    """
    pools = [pool for pool in (graph.host_memory.pools if graph.host_memory else ()) if victims(pool)]
    yield from judge_each(graph.workloads if pools else (), lambda workload: _stranger(graph, pools, workload))


def _labels(pool: HostMemoryPool, ledger: Ledger | None) -> Mapping[str, str]:
    """Returns the known labels of the pool's nodes. If the memory pool selects a node by hostname, the node also has
    the labels of the GPU pool with this hostname."""
    host = pool.node_selector.get(names.LABEL_HOSTNAME)
    known = dict(pool.node_selector)
    for gpus in ledger.pools if ledger is not None and host is not None else ():
        if gpus.node_selector.get(names.LABEL_HOSTNAME) == host:
            known |= gpus.node_selector
    return known


def _stranger(graph: Graph, pools: Sequence[HostMemoryPool], workload: Object) -> Iterator[Finding]:
    if member_of(graph, workload) is not None:
        return  # The rule `memory-workloads` judges the pods of declared workloads.
    pod_spec = map_at(pod_template(workload.manifest) or {}, "spec")
    try:
        beyond_mib = _beyond_mib(pod_spec)
    except UnprovenError:
        if any(_chooses(pod_spec, pool) for pool in pools):
            raise
        return  # Its memory doesn't matter.
    for pool in pools:
        least = min(victims(pool), key=_above_request_mib)
        if beyond_mib is not None and beyond_mib <= _above_request_mib(least):
            continue
        if _chooses(pod_spec, pool) and may_run_on(pod_spec, _labels(pool, graph.ledger)):
            beyond = "without a limit" if beyond_mib is None else f"by {beyond_mib} MiB"
            yield Finding(
                f"{workload}: asks for the nodes of memory_pools.{pool.name}, and may exceed its memory request "
                f"{beyond}. The disposable pods of {least.name} exceed theirs by {_above_request_mib(least)} MiB, so "
                "the kernel could kill this pod first. Set the memory limit of its containers to their memory request, "
                f"or declare it under memory_pools.{pool.name}.workloads, or {_other_nodes(pod_spec, pool)}",
                workload.urn,
            )


def _above_request_mib(disposable: Disposable) -> int:
    return disposable.resident_least_mib - disposable.request_mib


def _other_nodes(pod_spec: Mapping[str, Any], pool: HostMemoryPool) -> str:
    """Returns the change by which the pod leaves the pool's nodes."""
    label, value = next(iter(pool.node_selector.items()))
    if chooses(pod_spec, pool.node_selector):
        return f"change its nodeName, nodeSelector or nodeAffinity, which allows nodes with {label} {value}"
    away = f"{{key: {label}, operator: NotIn, values: [{value}]}}"
    return f"add {away} to the matchExpressions of its required nodeAffinity"


def _chooses(pod_spec: Mapping[str, Any], pool: HostMemoryPool) -> bool:
    keys = {taint.key for taint in pool.node_taints}
    return chooses(pod_spec, pool.node_selector) or any(
        text_at(each, "key") in keys for each in maps_at(pod_spec, "tolerations")
    )


def _beyond_mib(pod_spec: Mapping[str, Any]) -> int | None:
    """Returns the most MiB by which a container of the pod can exceed its memory request. Returns None if a container
    with a request has no limit. A container counts as one process, because the kernel compares processes."""
    most = 0
    for resources in (map_at(container, "resources") for container in containers_of(pod_spec)):
        limit = value_or(map_at(resources, "limits"), "memory", None)
        request = parse(value_or(map_at(resources, "requests"), "memory", 0 if limit is None else limit))
        if request and limit is None:
            return None
        if request:
            most = max(most, math.ceil((parse(limit) - request) / MIB))
    return most
