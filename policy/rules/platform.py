"""The rule on other programs: they change none of the platform's objects."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from policy.finding import Finding, judge_each
from policy.graph import KUEUE, Graph
from policy.objects import Object, text_at
from policy.rule import Example, an_object, rule
from policy.rules.priorities import CLASS, FOUND_CLASS
from policy.unknown import is_unknown
from tenancy import names, reach
from tenancy.ledger import Ledger
from tenancy.quantity import whole
from tenancy.workload import map_at, maps_at, value_or

_OF_A_LIMIT = ("default", "defaultRequest", "max", "min", "maxLimitRequestRatio")


@rule(
    "platform",
    Example(
        "spec.limits",
        [{"type": "Container", "max": {names.GPU: "1"}}],
        [{"type": "Container", "max": {"cpu": "4"}}],
        of=an_object("v1", "LimitRange", "x", "immich"),
        is_beside=True,
    ),
)
def platform(graph: Graph) -> Iterator[Finding]:
    """A program other than the platform's changes no PriorityClass, quota or queue of the platform, and no limit of its
    own breaks a promise."""
    ledger = graph.ledger
    if ledger is None or not graph.is_beside:
        return
    for kind, judge in _JUDGES.items():
        yield from judge_each(graph.of(kind), partial(judge, graph, ledger))


def is_taken(graph: Graph, found: Object) -> bool:
    """Returns True if a quota or queue has the name of one of the platform's quotas or queues. Only the rule `platform`
    reports a quota or queue with the name of one of the platform's quotas or queues."""
    ledger = graph.ledger
    if ledger is None or not graph.is_beside:
        return False
    if found.kind == "ResourceQuota":
        named = found.name == names.SEATS or found.name.startswith(f"{names.HOST_MEMORY_QUOTA}-")
        return named and _is_a_tenants(ledger, found)
    holder = f"cohort {found.name}" if found.kind == "Cohort" else found.name
    return holder in {quota.holder for quota in ledger.quotas}


def _own(found: Object) -> Finding:
    message = f"{found}: is the platform's own, which this program would change; remove it, or name it otherwise"
    return Finding(message, found.urn)


def _priority_class(graph: Graph, ledger: Ledger, found: Object) -> Iterator[Finding]:
    terms = ledger.admission
    if terms is None or found.name in terms.exempt_priorities:
        return
    if found.name in terms.priorities:
        yield _own(found)
        return
    if is_unknown(value_or(found.manifest, "value", 0)):
        return  # The rule `priorities` reports a class with an unknown value.
    value, most = whole(value_or(found.manifest, "value", 0)), terms.gpu_priority_value
    preempts = value_or(found.manifest, "preemptionPolicy", "PreemptLowerPriority") != "Never"
    if most is not None and value > most and preempts:
        yield Finding(
            f"{found}: value {value} is above that of {terms.gpu_priority}, so that its pods preempt seats; write "
            f"{most} or less, or preemptionPolicy: Never, or list it under admission.exempt_priorities of the "
            "platform's stack if only pods of exempt namespaces have it",
            found.urn,
        )


def _workload_priority_class(graph: Graph, ledger: Ledger, found: Object) -> Iterator[Finding]:
    ours = ledger.workload_priorities
    if found.name in ours:
        yield _own(found)
    elif ours and (value := whole(value_or(found.manifest, "value", 0))) > (most := max(ours.values())):
        yield Finding(
            f"{found}: value {value} is above {most}, the platform's highest, so that its work goes first and preempts "
            f"others; write {most} or less, or name {' or '.join(sorted(ours))}",
            found.urn,
        )


def _taken(graph: Graph, ledger: Ledger, found: Object) -> Iterator[Finding]:
    if is_taken(graph, found):
        yield _own(found)


def _limit_range(graph: Graph, ledger: Ledger, found: Object) -> Iterator[Finding]:
    """Reports a LimitRange with a GPU resource, which would add a GPU request to every container, or deny
    containers without a GPU request (docs/adr/0006)."""
    limits = [map_at(limit, part) for limit in maps_at(found.manifest, "spec", "limits") for part in _OF_A_LIMIT]
    limited = sorted({resource for limit in limits for resource in limit})
    ours = (ledger.names.gpumem, ledger.names.gpu_count)
    gpus = [r for r in limited if r in ours or reach.is_gpu_resource(r, ledger.names)]
    if gpus and found.namespace not in ledger.exempt_namespaces:
        yield Finding(
            f"{found}: gives {gpus[0]} to every container in {found.namespace}, or asks it of them; remove it: quota "
            "and admission bound who has it",
            found.urn,
        )
    pools = graph.host_memory.pools if graph.host_memory else ()
    victims = {victim.tenant for pool in pools for victim in pool.disposable}
    if (of_host := [r for r in limited if r in ("cpu", "memory")]) and found.namespace in victims:
        yield Finding(
            f"{found}: gives {of_host[0]} to every container in {found.namespace}, whose disposable pods go first "
            "because they ask for none; remove it",
            found.urn,
        )


def _local_queue(graph: Graph, ledger: Ledger, found: Object) -> Iterator[Finding]:
    ours = {(queue.tenant, queue.name) for queue in ledger.local_queues}
    if (found.namespace, found.name) in ours:
        yield _own(found)
        return
    spec = map_at(found.manifest, "spec")
    if is_unknown(spec.get("clusterQueue")):
        return  # The rule `queue-coverage` reports a queue with an unknown ClusterQueue.
    queue = text_at(spec, "clusterQueue")
    given_to = sorted({each.tenant for each in ledger.local_queues if each.queue == queue})
    is_ours = queue in {quota.holder for quota in ledger.quotas}
    if found.namespace in given_to or not ledger.local_queues:
        return
    if is_ours or (_is_a_tenants(ledger, found) and not _is_judged(graph, queue)):
        whose = f"is for {', '.join(given_to)}" if is_ours else "is in neither the ledger nor this program"
        yield Finding(
            f"{found}: ClusterQueue {queue} {whose}; remove it, or add queues.local_queues.{found.name}: {{tenant: "
            f"{found.namespace}, cluster_queue: {queue}}} to the platform's stack",
            found.urn,
        )


def _is_judged(graph: Graph, queue: str) -> bool:
    return graph.named(f"ClusterQueue.{KUEUE}", queue) is not None


def _flavor(graph: Graph, ledger: Ledger, found: Object) -> Iterator[Finding]:
    if found.name in {quota.flavor for quota in ledger.quotas}:
        yield _own(found)


def _is_a_tenants(ledger: Ledger, found: Object) -> bool:
    return found.namespace in ledger.tenants_by_name


_JUDGES: Mapping[str, Callable[[Graph, Ledger, Object], Iterator[Finding]]] = {
    # If this map has no entry for the Patch resource of a kind, a rule in foreign.py refuses each Patch of the kind.
    CLASS: _priority_class,
    FOUND_CLASS: _priority_class,
    "LimitRange": _limit_range,
    "LimitRangePatch": _limit_range,
    "ResourceQuota": _taken,
    f"LocalQueue.{KUEUE}": _local_queue,
    f"ClusterQueue.{KUEUE}": _taken,
    f"Cohort.{KUEUE}": _taken,
    f"WorkloadPriorityClass.{KUEUE}": _workload_priority_class,
    f"ResourceFlavor.{KUEUE}": _flavor,
}
