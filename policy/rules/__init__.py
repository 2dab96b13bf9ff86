"""Collects the rules of all modules in this package. The rules of ledger.py run first, and the other modules follow in
the order of their names."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pkgutil import iter_modules

from policy.finding import UNREADABLE, Finding
from policy.graph import Graph
from policy.rule import Rule

_FIRST = "ledger"
_MOST = 50  # The maximum number of printed findings of a rule.


def _rules() -> Iterator[Rule]:
    for name in sorted((module.name for module in iter_modules(__path__)), key=lambda name: (name != _FIRST, name)):
        module = import_module(f"{__name__}.{name}")
        yield from (found for found in vars(module).values() if isinstance(found, Rule))


RULES = tuple(_rules())


@dataclass(frozen=True)
class Violation:
    """A finding with its rule, as Pulumi shows it to the operator. A finding that `is_for_admission` is about what is
    unknown of an object outside of the tenants' namespaces, and refuses nothing."""

    rule: Rule
    finding: Finding
    is_for_admission: bool = False

    def __str__(self) -> str:
        return f"{self.rule.id}: {self.finding.message}"


def violations(graph: Graph, without: Collection[str] = ()) -> Iterator[Violation]:
    """Yields the first findings of each rule, and the number of the rule's other findings. The rules in `without` do
    not run."""
    for rule in (rule for rule in RULES if rule.id not in without):
        found = _found(rule, graph)
        yield from islice(found, _MOST)
        if more := sum(1 for _ in found):
            yield Violation(rule, Finding(f"and {more} more"))


def _found(rule: Rule, graph: Graph) -> Iterator[Violation]:
    try:
        for finding in rule.check(graph):
            yield Violation(rule, finding, is_for_admission=graph.is_for_admission(finding.unknown_of))
    except UNREADABLE as error:  # A value that the rule needs for all objects is unknown.
        yield Violation(rule, Finding(f"cannot be proven: {error}"))
