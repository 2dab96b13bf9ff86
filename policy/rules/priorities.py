"""Rules on PriorityClasses, and on the classes that admission policies set in pods."""

import re
from collections.abc import Iterator

from policy.finding import Finding, judge_each
from policy.graph import Graph
from policy.objects import Object, text_at
from policy.rule import Example, rule
from tenancy.policy_names import STAMP_PRIORITY
from tenancy.quantity import whole
from tenancy.workload import map_at, maps_at, pod_template, value_or

CLASS = "PriorityClass.scheduling.k8s.io"
# With `create: false`, the PriorityClass existed before the stack, and keeps its values.
FOUND_CLASS = CLASS.replace(".", "Patch.", 1)
_POLICY = "MutatingAdmissionPolicy.admissionregistration.k8s.io"
# The largest value that a PriorityClass of ours may have. Kubernetes reserves all larger values for its own classes
# (pkg/apis/scheduling/types.go).
_HIGHEST = 1_000_000_000
_SYSTEM = "system-"
# Matches the name of a PriorityClass in CEL. The name is in a JSON Patch (path, then value) or in an apply
# configuration (priorityClassName: "...").
_STAMPED = re.compile(r"""priorityClassName['"]?\s*[:,]\s*(?:value\s*:\s*)?(?:"([^"]+)"|'([^']+)')""")


@rule(
    "priorities",
    Example("priorities.tier-2-gpu.value", 2_000_000, 600_000),
    Example("priorities.homelab-disposable.preemption_policy", "PreemptLowerPriority", "Never"),
)
def priorities(graph: Graph) -> Iterator[Finding]:
    """Each PriorityClass has a permitted value, and at most one class is the default. The program declares each class
    that its pods and its admission policies name."""
    yield from judge_each((*graph.of(CLASS), *graph.of(FOUND_CLASS)), _values)
    yield from judge_each(graph.of(CLASS)[1:], lambda later: _one_default(graph, later))
    yield from judge_each(graph.of(_POLICY), lambda policy: _stamps(graph, policy))
    yield from judge_each(graph.workloads, lambda workload: _names_a_class(graph, workload))


def _values(declared: Object) -> Iterator[Finding]:
    value = whole(value_or(declared.manifest, "value", 0))
    if value > _HIGHEST:
        yield Finding(f"{declared}: value {value} is above {_HIGHEST}, the system's own; lower it", declared.urn)
    if value < 0 and value_or(declared.manifest, "preemptionPolicy", "PreemptLowerPriority") != "Never":
        yield Finding(
            f"{declared}: value {value} makes its pods disposable, but they may preempt others; write "
            "preemption_policy: Never",
            declared.urn,
        )


def _one_default(graph: Graph, later: Object) -> Iterator[Finding]:
    defaults = [found for found in graph.of(CLASS) if found.manifest.get("globalDefault")]
    if later in defaults[1:]:
        yield Finding(f"{later}: a second globalDefault next to {defaults[0]}; keep one", later.urn)


def stamped_class(policy: Object) -> str | None:
    """Returns the PriorityClass that a policy sets in pods, or None if the policy sets none."""
    for mutation in maps_at(policy.manifest, "spec", "mutations"):
        for form in ("jsonPatch", "applyConfiguration"):
            found = _STAMPED.search(text_at(map_at(mutation, form), "expression"))
            if found:
                return found.group(1) or found.group(2)
    return None


def _stamps(graph: Graph, policy: Object) -> Iterator[Finding]:
    """Reports a policy that sets a tenant's PriorityClass with a value that is not below gpu_priority. Pods with a
    tenant's PriorityClass must be evicted before pods with gpu_priority."""
    stamped = stamped_class(policy)
    if stamped is None:
        return
    value = value_of(graph, stamped)
    if value is None:
        yield _undeclared(policy, stamped)
    general = graph.named(_POLICY, STAMP_PRIORITY)
    highest = stamped_class(general) if general is not None and general is not policy else None
    most = value_of(graph, highest) if highest else None
    if value is not None and most is not None and value >= most:
        yield Finding(
            f"{policy}: stamps {stamped} ({value}), which is not below {highest} ({most}); lower priorities.{stamped}, "
            f"or raise priorities.{highest}",
            policy.urn,
        )


def _names_a_class(graph: Graph, workload: Object) -> Iterator[Finding]:
    """Reports a workload with an undeclared PriorityClass, if the program declares the ledger. Other programs may use
    the platform's classes without a declaration."""
    named = text_at(map_at(pod_template(workload.manifest) or {}, "spec"), "priorityClassName")
    if graph.ledger_objects and named and not named.startswith(_SYSTEM) and value_of(graph, named) is None:
        yield _undeclared(workload, named)


def value_of(graph: Graph, name: str) -> int | None:
    """Returns the value of the PriorityClass with this name, or None if the graph has no such class."""
    found = graph.named(CLASS, name) or graph.named(FOUND_CLASS, name)
    return None if found is None else whole(value_or(found.manifest, "value", 0))


def _undeclared(user: Object, name: str) -> Finding:
    return Finding(f"{user}: names PriorityClass {name}, which nobody declares; add priorities.{name}", user.urn)
