"""The rules, each under the id that its messages start with."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from policy.finding import UNREADABLE, Finding
from policy.graph import Graph
from policy.rules import (
    admission,
    agents,
    caps,
    claims,
    foreign,
    host_memory,
    host_memory_guard,
    host_memory_node,
    ledger,
    namespaces,
    platform,
    pods,
    priorities,
    queues,
    rbac,
    scheduler,
    tenants,
    workloads,
)

_LONGEST = 2000  # characters of a message
_MOST = 50  # findings of a rule that are listed


@dataclass(frozen=True)
class Rule:
    """A pure function from the graph to findings; its docstring's first paragraph is the description."""

    id: str
    check: Callable[[Graph], Iterable[Finding]]

    @property
    def description(self) -> str:
        """One sentence: what holds in every graph that passes."""
        return " ".join((self.check.__doc__ or "").partition("\n\n")[0].split())


RULES = (
    Rule("ledger", ledger.readable),
    Rule("ledger-references", ledger.references),
    Rule("budgets", ledger.budgets),
    Rule("physical", ledger.physical),
    Rule("seat-size", ledger.seats_on_a_device),
    Rule("placement", ledger.placement),
    Rule("full-seats", ledger.full_pools),
    Rule("counted", foreign.judgeable),
    Rule("admission", admission.admitted),
    Rule("seats", workloads.seats),
    Rule("device", workloads.device),
    Rule("rollout", workloads.rollout),
    Rule("whole-mib", workloads.whole_mib),
    Rule("resource-quota", tenants.resource_quota),
    Rule("namespaces", namespaces.namespaces),
    Rule("platform", platform.platform),
    Rule("gpu-quota", queues.gpu_quota),
    Rule("queue-coverage", queues.coverage),
    Rule("namespace-selector", queues.namespace_selector),
    Rule("preemption", queues.preemption),
    Rule("flavors", queues.flavors),
    Rule("priorities", priorities.priorities),
    Rule("memory-pools", host_memory.readable),
    Rule("memory-requests", host_memory.requests),
    Rule("memory-limits", host_memory.limits),
    Rule("memory-victim", host_memory.victim),
    Rule("memory-oom", host_memory.oom),
    Rule("memory-eviction", host_memory.eviction),
    Rule("memory-peaks", host_memory.peaks),
    Rule("memory-workloads", host_memory.workloads),
    Rule("memory-guard", host_memory_guard.guard),
    Rule("memory-gpu", host_memory_node.gpu_seats),
    Rule("memory-strangers", host_memory_node.strangers),
    Rule("agents", agents.agents),
    Rule("caps", caps.caps),
    Rule("scheduler", scheduler.scheduler),
    Rule("claims", claims.claims),
    Rule("rbac", rbac.rbac),
    Rule("hardened", pods.hardened),
    Rule("images", pods.images),
)


@dataclass(frozen=True)
class Violation:
    """A finding of a rule, as the operator reads it."""

    rule: Rule
    finding: Finding

    def __str__(self) -> str:
        """Of a message that quotes a megabyte the begin, which says where, and the end, which says what to do."""
        text = self.finding.message
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 4 :]}"
        return f"{self.rule.id}: {text}"


def violations(graph: Graph, without: Collection[str] = ()) -> Iterator[Violation]:
    """What the rules find, in their order: of each the first findings, and how many more there are. Those of the ids in
    `without` are not asked."""
    for rule in (rule for rule in RULES if rule.id not in without):
        found = _found(rule, graph)
        yield from islice(found, _MOST)
        if more := sum(1 for _ in found):
            yield Violation(rule, Finding(f"and {more} more"))


def _found(rule: Rule, graph: Graph) -> Iterator[Violation]:
    try:
        for finding in rule.check(graph):
            yield Violation(rule, finding)
    except UNREADABLE as error:  # of something that all objects of a rule share
        yield Violation(rule, Finding(f"cannot be proven: {error}"))
