"""The rule over the GPU seats that workloads of a memory pool have."""

from collections.abc import Iterator

from policy.finding import Finding, each
from policy.graph import Graph
from policy.objects import Object, text, texts
from policy.rules.priorities import stamped_class
from tenancy import names
from tenancy.host_memory.pool import HostMemoryPool, Workload
from tenancy.ledger import Ledger
from tenancy.workload import maps_at

_STAMPS = "MutatingAdmissionPolicy.admissionregistration.k8s.io"


def gpu_seats(graph: Graph) -> Iterator[Finding]:
    """A workload with a GPU seat and a memory pool can be on the nodes of both, in the class of its memory pool."""
    for pool in graph.host_memory.pools if graph.host_memory else ():
        for workload in pool.workloads:
            if graph.ledger is not None and workload.name in {s.name for s in graph.ledger.seats_of(workload.tenant)}:
                yield from _nodes(graph.ledger, pool, workload)
                yield from each(graph.of(_STAMPS), lambda policy, w=workload: _stamp(policy, w))  # type: ignore[misc]


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


def _stamp(policy: Object, workload: Workload) -> Iterator[Finding]:
    stamped = stamped_class(policy)
    if stamped not in (None, workload.priority) and _selects(policy, workload.tenant):
        yield Finding(
            f"{policy}: stamps {stamped} on {workload.name}, which has a GPU seat; its memory pool knows it by "
            f"{workload.priority}, and the API server would deny its pods; write admission.tenant_priorities."
            f"{workload.tenant}: {workload.priority}",
            policy.urn,
        )


def _selects(policy: Object, namespace: str) -> bool:
    """Whether the policy is for the namespace, as far as its name says."""
    for expression in maps_at(policy.manifest, "spec", "matchConstraints", "namespaceSelector", "matchExpressions"):
        if text(expression, "key") == names.LABEL_NAMESPACE:
            operator, among = text(expression, "operator"), namespace in texts(expression, "values")
            if (operator, among) in (("In", False), ("NotIn", True)):
                return False
    return True
