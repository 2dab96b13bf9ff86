"""Writes the rules of the policy pack into docs/reference/policy-rules.md, with their examples and messages."""

import copy
from typing import Any

import yaml

from policy.rule import Example, Rule
from policy.rules import RULES
from tests.support.examples import Case
from tests.support.graphs import put
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "policy-rules.md"
_BELOW = "<!-- below: make golden -->\n"


def page() -> str:
    head, mark, _ = PAGE.read_text().partition(_BELOW)
    return head + mark + "".join(map(_section, RULES))


def _section(rule: Rule) -> str:
    return f"\n### {rule.id}\n\n{rule.description}\n" + "".join(
        _shown(Case(rule.id, number)) for number in range(len(rule.examples))
    )


def _shown(case: Case) -> str:
    example, said = case.example, "\n".join(case.said())
    return f"\n```yaml\n{_written(example)}\n```\n\n```text\n{said}\n```\n\n{_instead(example)}\n"


def _instead(example: Example) -> str:
    return example.instead or f"Write `{_line(example.key, example.right)}`."


def _written(example: Example) -> str:
    if isinstance(example.of, str):
        return f"# {example.of}\n{_line(example.key, example.wrong)}"
    if example.of is None:
        return "\n".join(_line(*each) for each in {**example.given, example.key: example.wrong}.items())
    found = copy.deepcopy(dict(example.of))
    if example.key:
        put(found, example.key, example.wrong)
    return str(yaml.safe_dump(found, sort_keys=False, width=1000)).rstrip()


def _line(key: str, value: Any) -> str:
    flow = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000).removesuffix("...\n").strip()
    return f"{key}: {flow}"
