"""Collects the rules of all modules in this package. Rules on the ledger come first; the other modules follow by
name."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pkgutil import iter_modules

from policy.finding import UNREADABLE, Finding
from policy.graph import Graph
from policy.rule import Rule

_FIRST = "ledger"
_LONGEST = 2000  # characters of a message
_MOST = 50  # findings of a rule that are listed


def _rules() -> Iterator[Rule]:
    for name in sorted((module.name for module in iter_modules(__path__)), key=lambda name: (name != _FIRST, name)):
        module = import_module(f"{__name__}.{name}")
        yield from (found for found in vars(module).values() if isinstance(found, Rule))


RULES = tuple(_rules())


@dataclass(frozen=True)
class Violation:
    """Holds a finding of a rule, as Pulumi shows the finding to the operator."""

    rule: Rule
    finding: Finding

    def __str__(self) -> str:
        """Returns the message. A very long message is cut in the middle."""
        text = self.finding.message
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 4 :]}"
        return f"{self.rule.id}: {text}"


def violations(graph: Graph, without: Collection[str] = ()) -> Iterator[Violation]:
    """Yields the first findings of each rule, and the number of the findings left out. Rules in `without` do not
    run."""
    for rule in (rule for rule in RULES if rule.id not in without):
        found = _found(rule, graph)
        yield from islice(found, _MOST)
        if more := sum(1 for _ in found):
            yield Violation(rule, Finding(f"and {more} more"))


def _found(rule: Rule, graph: Graph) -> Iterator[Violation]:
    try:
        for finding in rule.check(graph):
            yield Violation(rule, finding)
    except UNREADABLE as error:  # All objects of the rule share the same unknown value.
        yield Violation(rule, Finding(f"cannot be proven: {error}"))
