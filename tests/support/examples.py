"""Turns each example of a policy rule into a program."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from policy.rule import Example
from policy.rules import RULES
from tests.support import graphs, prod
from tests.support.workspace import Outcome


@dataclass(frozen=True)
class Case:
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
        return judged(self.example, self.example.wrong)

    def said_of_the_right_one(self) -> list[str]:
        example = self.example
        if example.of is None and changed(prod.raw(), example, example.right) == prod.raw():
            return _said_of_prod()
        return judged(example, example.right) if example.key else graphs.judge(graphs.platform())


# One real preview shows the first mistake of every rule.
SHOWN = ("budgets", "gpu-quota", "preemption", "priorities", "on-demand", "full-seats", "memory-limits")
CASES = [Case(rule.id, number) for rule in RULES for number in range(len(rule.examples))]


@cache
def _said_of_prod() -> list[str]:
    return graphs.judge(prod.declared(prod.raw()))


def with_mistakes(config: dict[str, Any]) -> None:
    for rule in RULES:
        if rule.id in SHOWN:
            changed(config, rule.examples[0], rule.examples[0].wrong)


def assert_refused(outcome: Outcome) -> None:
    config = prod.raw()
    with_mistakes(config)
    expected = graphs.judge(prod.declared(config))
    assert graphs.rules_of(expected) == {*SHOWN}
    assert outcome.code != 0
    assert [line for line in expected if line not in outcome.text] == [], outcome.text
    assert outcome.text.count("[mandatory]") >= len(expected), outcome.text
    assert "Traceback" not in outcome.text


def judged(example: Example, value: Any) -> list[str]:
    if example.of is None:
        return graphs.judge(prod.declared(changed(prod.raw(), example, value)))
    config = {"ledger": graphs.LEDGER.to_data()} if example.is_beside else None
    return graphs.judge(program_of(example, value), config)


def changed(config: dict[str, Any], example: Example, value: Any) -> dict[str, Any]:
    for key, given in {**example.given, example.key: value}.items():
        graphs.put(config, key, copy.deepcopy(given))
    return config


def program_of(example: Example, value: Any) -> graphs.Program:
    program, value = {} if example.is_beside else graphs.platform(), copy.deepcopy(value)
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
