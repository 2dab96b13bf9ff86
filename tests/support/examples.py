"""Turns the examples of the policy rules into programs.

A program is prod with one changed key or object, or a small program.
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from policy.rule import Example
from policy.rules import RULES
from tests.support import graphs, prod
from toolchain.workspace import Outcome


@dataclass(frozen=True)
class Case:
    """Identifies an example by its rule and its number among the examples of that rule."""

    rule: str
    number: int

    @property
    def example(self) -> Example:
        (found,) = (rule for rule in RULES if rule.id == self.rule)
        return found.examples[self.number]

    def __str__(self) -> str:
        return f"{self.rule} {self.number}"

    @cache  # noqa: B019 (rendering prod takes half a second)
    def said(self) -> list[str]:
        """Returns the policy pack's messages about the program with the mistake."""
        return judged(self.example, self.example.wrong)

    def said_of_the_right_one(self) -> list[str]:
        """Returns the policy pack's messages about the program with the right value.

        For an example without a key, the program lacks the example's object instead.
        """
        example = self.example
        if example.of is None and changed(prod.raw(), example, example.right) == prod.raw():
            return _said_of_prod()
        return judged(example, example.right) if example.key else graphs.judge(graphs.platform())


# One real preview has the first mistake of each of these rules. Each message is the same as with a single mistake.
SHOWN = ("budgets", "gpu-quota", "preemption", "priorities", "on-demand", "full-seats", "memory-oom")
CASES = [Case(rule.id, number) for rule in RULES for number in range(len(rule.examples))]


@cache
def _said_of_prod() -> list[str]:
    return graphs.judge(prod.declared(prod.raw()))


def with_mistakes(config: dict[str, Any]) -> None:
    """Changes the settings so that they have the first mistake of each rule in SHOWN."""
    for rule in RULES:
        if rule.id in SHOWN:
            changed(config, rule.examples[0], rule.examples[0].wrong)


def assert_refused(outcome: Outcome) -> None:
    """Checks that the preview was refused, and that its output has each message of the rules in SHOWN."""
    config = prod.raw()
    with_mistakes(config)
    expected = graphs.judge(prod.declared(config))
    assert graphs.rules_of(expected) == {*SHOWN}
    assert outcome.code != 0
    assert [line for line in expected if line not in outcome.text] == [], outcome.text
    assert outcome.text.count("[mandatory]") >= len(expected), outcome.text
    assert "Traceback" not in outcome.text


def judged(example: Example, value: Any) -> list[str]:
    """Returns the policy pack's messages about the program with this value at the example's key."""
    if example.of is None:
        return graphs.judge(prod.declared(changed(prod.raw(), example, value)))
    config = {"ledger": graphs.LEDGER.to_data()} if example.is_beside else None
    return graphs.judge(_program(example, value), config)


def changed(config: dict[str, Any], example: Example, value: Any) -> dict[str, Any]:
    """Sets the example's keys in the settings, and returns the settings."""
    for key, given in {**example.given, example.key: value}.items():
        graphs.put(config, key, copy.deepcopy(given))
    return config


def _program(example: Example, value: Any) -> graphs.Program:
    program = {} if example.is_beside else graphs.platform()
    if isinstance(example.of, Mapping):
        found = program["more"] = copy.deepcopy(dict(example.of))
        if example.key:
            graphs.put(found, example.key, value)
        return program
    called, _, file = str(example.of).partition(": ")
    found = next(each for each in program.values() if _called(each) == called)
    if not file:
        graphs.put(found, example.key, value)
    elif value == graphs.UNKNOWN:
        found["data"][file] = value
    else:
        document = json.loads(found["data"][file])
        graphs.put(document, example.key, value)
        found["data"][file] = json.dumps(document)
    return program


def _called(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata", {})
    parts = (metadata.get("namespace"), metadata.get("name"))
    return f"{manifest['kind']} {'/'.join(part for part in parts if part)}"
