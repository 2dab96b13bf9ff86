"""Rules on the memory pools. The kernel and the kubelet must end a disposable pod before any other pod. The end of all
disposable pods must free enough host memory for the other pods."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from policy.finding import Finding, judge_each
from policy.graph import Graph
from policy.objects import Object, text_at
from policy.rule import MAIN, Example, a_deployment, an_object, memory_resources, rule
from policy.rules.priorities import value_of
from tenancy import names
from tenancy.host_memory.pool import Disposable, HostMemoryPool, Workload
from tenancy.host_memory.proof import bursts, outranked, requested_mib, victims
from tenancy.ledger import Ledger
from tenancy.units import MIB
from tenancy.workload import containers_of, map_at, memory_limit_mib, pod_request, pod_template, tolerates

_ON_NODE_4 = {"nodeSelector": {names.LABEL_HOSTNAME: "node-4"}, "priorityClassName": "homelab-critical"}


@rule(
    "memory-pools",
    Example(
        of=an_object("v1", "ConfigMap", names.HOST_MEMORY_POOLS, "other", data={}),
        instead="Remove the memory pools: only the platform's program may declare memory pools.",
    ),
)
def readable(graph: Graph) -> Iterator[Finding]:
    """The program declares its memory pools at most once, and the policy pack can read the declaration."""
    yield from graph.host_memory_problems


@rule("memory-requests", Example("memory_pools.node-4.workloads.inference.request_mib", 4096, 8192))
def requests(graph: Graph) -> Iterator[Finding]:
    """The memory requests of a memory pool's workloads fit together on one of its nodes. Each workload requests at
    least its steady_mib."""
    for pool in _pools(graph):
        requested = requested_mib(pool)
        if requested > pool.allocatable_mib:
            yield _finding(
                graph,
                f"{pool.name}: {requested} MiB are requested, {pool.allocatable_mib} allocatable "
                f"({requested - pool.allocatable_mib} over); lower a request_mib of memory_pools.{pool.name}",
            )
        for workload in pool.workloads:
            if workload.request_mib < workload.steady_mib:
                yield _finding(
                    graph,
                    f"{pool.name}: {workload.name} requests {workload.request_mib} MiB and almost always holds "
                    f"{workload.steady_mib}; raise {_key(pool, workload)}.request_mib",
                )


@rule("memory-limits", Example("memory_pools.node-4.workloads.inference.limit_mib", 65_536, 32_768))
def limits(graph: Graph) -> Iterator[Finding]:
    """No workload of a memory pool has a memory limit above the allocatable host memory of a node. Up to this limit,
    the guard makes the kernel kill every disposable pod before the workload."""
    for pool in _pools(graph):
        for workload in pool.workloads:
            if workload.limit_mib > pool.allocatable_mib:
                yield _finding(
                    graph,
                    f"{pool.name}: {workload.name} may hold {workload.limit_mib} MiB, a node offers "
                    f"{pool.allocatable_mib}: it alone could take the whole node, and no victim would help; lower "
                    f"{_key(pool, workload)}.limit_mib",
                )


@rule("memory-victim", Example("memory_pools.node-4.disposable.agent-microvm.pods_least", 0, 1))
def victim(graph: Graph) -> Iterator[Finding]:
    """Every oversubscribed memory pool has a disposable workload that always runs a pod. Each disposable pod requests
    less host memory than it always uses, and less than every protected workload requests."""
    for pool in _pools(graph):
        wrong = [disposable for disposable in pool.disposable if not _is_cheap(pool, disposable)]
        for disposable in wrong:
            smallest = min(pool.workloads, key=lambda w: w.request_mib)
            yield _finding(
                graph,
                f"{pool.name}: {disposable.name} requests {disposable.request_mib} MiB; it holds from "
                f"{disposable.resident_least_mib}, and {smallest.name} requests {smallest.request_mib}: within its "
                f"request a victim is not evicted first; lower {_key(pool, disposable)}.request_mib, best to 0",
            )
        bursting = [workload for workload in pool.workloads if workload.is_oversubscribed]
        if bursting and not wrong and not victims(pool):
            largest = max(bursting, key=lambda w: w.limit_mib - w.request_mib)
            yield _finding(
                graph,
                f"{pool.name}: {largest.name} may take {largest.limit_mib - largest.request_mib} MiB of slack, and no "
                f"pod is always there to be killed for it; add one to memory_pools.{pool.name}.disposable (with "
                "pods_least 1 or more), or make request_mib and limit_mib equal",
            )


@rule(
    "memory-eviction",
    Example("memory_pools.node-4.disposable.agent-microvm.priority", "homelab-critical", "homelab-disposable"),
)
def eviction(graph: Graph) -> Iterator[Finding]:
    """If a node of a memory pool is short of host memory, the kubelet evicts a disposable pod before any protected
    pod."""
    for pool in _proven(graph):
        values = {m.priority: value_of(graph, m.priority) for m in pool.members}
        known = {name: value for name, value in values.items() if value is not None}
        if len(known) < len(values):
            continue  # Another rule reports a missing PriorityClass.
        together: dict[tuple[Disposable, str], list[str]] = {}
        for first, workload in outranked(pool, known):
            together.setdefault((first, workload.priority), []).append(workload.name)
        for (first, priority), members in together.items():
            yield _finding(
                graph,
                f"{pool.name}: the kubelet may evict {', '.join(members)} ({priority}, {known[priority]}) before "
                f"{first.name} ({first.priority}, {known[first.priority]}): both may be above their requests; "
                f"give {_key(pool, first)}.priority a class below {known[priority]}",
            )


@rule(
    "memory-peaks",
    Example(
        "memory_pools.node-4.workloads.clickhouse.peak_mib",
        50_000,
        35_000,
        given={
            "memory_pools.node-4.workloads.clickhouse.limit_mib": 50_000,
        },
    ),
)
def peaks(graph: Graph) -> Iterator[Finding]:
    """After all disposable pods have ended, a node of a memory pool has enough host memory for the peaks of any two
    workloads at once."""
    for pool in _pools(graph):
        short = [burst for burst in bursts(pool) if burst.short_mib]
        if short:
            worst = short[0]
            together = " and ".join(w.name for w in worst.workloads)
            yield _finding(
                graph,
                f"{pool.name}: while {together} peak, the workloads hold {worst.total_mib} MiB, the pods have "
                f"{pool.pods_mib}: {worst.short_mib} short with every victim gone; move a workload off "
                f"memory_pools.{pool.name}",
            )


@rule(
    "memory-workloads",
    Example(
        f"{MAIN}.resources",
        memory_resources("8Gi", "40Gi"),
        memory_resources("8Gi", "32Gi"),
        of=a_deployment("inference", "inference", **_ON_NODE_4),
    ),
)
def workloads(graph: Graph) -> Iterator[Finding]:
    """The pods of a memory pool's workload have the PriorityClass, nodeSelector, tolerations, memory request and memory
    limit that the pool declares."""
    yield from judge_each(graph.workloads, lambda workload: _workload(graph, workload))


@rule("memory-gpu", Example("admission.tenant_priorities.inference", "tier-2-gpu", "homelab-critical"))
def gpu_seats(graph: Graph) -> Iterator[Finding]:
    """If a workload of a memory pool also has a GPU seat, the same node can belong to the memory pool and the GPU's
    pool. Admission sets the PriorityClass that the memory pool declares."""
    for pool in _pools(graph):
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


def _member_of(graph: Graph, workload: Object) -> tuple[HostMemoryPool, Workload | Disposable] | None:
    """Returns what a memory pool declares of the workload, with the pool, or None. The workload goes by its name, or by
    a label of its pods."""
    declared = {(m.tenant, m.name): (pool, m) for pool in _pools(graph) for m in pool.members}
    if not declared or workload.namespace not in {tenant for tenant, _ in declared}:
        return None
    labels = map_at(pod_template(workload.manifest) or {}, "metadata", "labels")
    called = (workload.name, text_at(labels, names.LABEL_NAME))
    return next(filter(None, (declared.get((workload.namespace, name)) for name in called)), None)


def _workload(graph: Graph, workload: Object) -> Iterator[Finding]:
    found = _member_of(graph, workload)
    if found is None:
        return
    pool, member = found
    pod_spec = map_at(pod_template(workload.manifest) or {}, "spec")
    for field, is_, should in _differences(pool, member, pod_spec):
        yield Finding(
            f"{workload}: {field} is {is_}, {_key(pool, member)} makes it {should}; use the platform's output memory",
            workload.urn,
        )


def _differences(
    pool: HostMemoryPool, member: Workload | Disposable, pod_spec: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    priority = text_at(pod_spec, "priorityClassName")
    if priority != member.priority:
        yield "priorityClassName", priority or "empty", member.priority
    selected = map_at(pod_spec, "nodeSelector")
    for key, value in pool.node_selector.items():
        if selected.get(key) != value:
            yield f"nodeSelector {key}", str(selected.get(key, "empty")), value
    for taint in pool.node_taints:
        if not tolerates(pod_spec, asdict(taint)):
            yield "tolerations", "without the pool's taint", str(taint)
    request = pod_request(pod_spec, "memory")
    if request != member.request_mib * MIB:
        yield "its memory request", f"{request / MIB:g} MiB", f"{member.request_mib} MiB"
    if isinstance(member, Workload):
        yield from _other_limit(member, pod_spec)


def _other_limit(workload: Workload, pod_spec: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Admission denies a protected pod if one of its containers has no memory limit, init containers among them."""
    without = [c for c in containers_of(pod_spec) if map_at(c, "resources", "limits").get("memory") is None]
    for container in without:
        yield f"the memory limit of its container {text_at(container, 'name')}", "missing", "necessary"
    limit_mib = memory_limit_mib(pod_spec)
    if not without and limit_mib != workload.limit_mib:
        yield "its memory limit", f"{limit_mib} MiB", f"{workload.limit_mib} MiB"


def _pools(graph: Graph) -> tuple[HostMemoryPool, ...]:
    return graph.host_memory.pools if graph.host_memory else ()


def _proven(graph: Graph) -> list[HostMemoryPool]:
    return [pool for pool in _pools(graph) if victims(pool) and all(_is_cheap(pool, d) for d in pool.disposable)]


def _is_cheap(pool: HostMemoryPool, disposable: Disposable) -> bool:
    smallest_mib = min((w.request_mib for w in pool.workloads), default=disposable.request_mib + 1)
    return disposable.request_mib < min(disposable.resident_least_mib, smallest_mib)


def _key(pool: HostMemoryPool, member: Workload | Disposable) -> str:
    part = "workloads" if isinstance(member, Workload) else "disposable"
    return f"memory_pools.{pool.name}.{part}.{member.name}"


def _finding(graph: Graph, message: str) -> Finding:
    return Finding(message, graph.host_memory_objects[0].urn if graph.host_memory_objects else None)
