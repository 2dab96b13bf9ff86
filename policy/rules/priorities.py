"""The rule on PriorityClasses, and the value of a PriorityClass."""

from collections.abc import Iterator

from policy.finding import Finding, judge_each
from policy.graph import Graph
from policy.objects import Object, text_at
from policy.rule import Example, rule
from tenancy.ledger import AdmissionTerms
from tenancy.quantity import whole
from tenancy.workload import map_at, pod_template, value_or

CLASS = "PriorityClass.scheduling.k8s.io"
# With `create: false`, the PriorityClass existed before the stack, and keeps its values.
FOUND_CLASS = CLASS.replace(".", "Patch.", 1)
_SYSTEM = "system-"


@rule(
    "priorities",
    Example("priorities.tier-2-gpu.value", 2_000_000, 600_000),
    Example("priorities.homelab-disposable.preemption_policy", "PreemptLowerPriority", "Never"),
)
def priorities(graph: Graph) -> Iterator[Finding]:
    """A PriorityClass below 0 preempts nobody, and the classes of tenants are below gpu_priority. The program declares
    each class that its pods name."""
    yield from judge_each((*graph.of(CLASS), *graph.of(FOUND_CLASS)), _values)
    if graph.ledger is not None and graph.ledger.admission is not None:
        yield from _below_the_gpus(graph, graph.ledger.admission)
    yield from judge_each(graph.workloads, lambda workload: _names_a_class(graph, workload))


def _values(declared: Object) -> Iterator[Finding]:
    value = whole(value_or(declared.manifest, "value", 0))
    if value < 0 and value_or(declared.manifest, "preemptionPolicy", "PreemptLowerPriority") != "Never":
        yield Finding(
            f"{declared}: value {value} makes its pods disposable, but they may preempt others; write "
            "preemption_policy: Never",
            declared.urn,
        )


def _below_the_gpus(graph: Graph, terms: AdmissionTerms) -> Iterator[Finding]:
    """Reports a tenant's PriorityClass with a value that is not below gpu_priority. Pods with a tenant's PriorityClass
    must be evicted before pods with gpu_priority."""
    most = value_of(graph, terms.gpu_priority)
    for own in sorted({*terms.tenant_priorities.values()}):
        value = value_of(graph, own)
        if value is not None and most is not None and value >= most:
            yield Finding(
                f"admission.tenant_priorities: {own} ({value}) is not below {terms.gpu_priority} ({most}); lower "
                f"priorities.{own}, or raise priorities.{terms.gpu_priority}"
            )


def _names_a_class(graph: Graph, workload: Object) -> Iterator[Finding]:
    """Reports a workload with an undeclared PriorityClass, if the program declares the ledger. Other programs may use
    the platform's classes without a declaration."""
    named = text_at(map_at(pod_template(workload.manifest) or {}, "spec"), "priorityClassName")
    if graph.ledger_objects and named and not named.startswith(_SYSTEM) and value_of(graph, named) is None:
        message = f"{workload}: names PriorityClass {named}, which nobody declares; add priorities.{named}"
        yield Finding(message, workload.urn)


def value_of(graph: Graph, name: str) -> int | None:
    """Returns the value of the PriorityClass with this name, or None if the graph has no such class."""
    found = graph.named(CLASS, name) or graph.named(FOUND_CLASS, name)
    return None if found is None else whole(value_or(found.manifest, "value", 0))
