"""Tests how the configuration makes a rule advisory, or disables it."""

from typing import Any

import pytest

from policy import pack
from policy.enforcement import Enforcement, Level, enforcement
from policy.graph import Graph
from policy.rules import RULES
from policy.view import objects_of
from tests.support import graphs

IDS = [rule.id for rule in RULES]
WHY = "the card is free at night"


def verdict(rules: object) -> tuple[list[str], list[str]]:
    said: list[str] = []
    refused: list[str] = []
    configured = {"rules": rules}
    program = {**graphs.platform(), "stray": graphs.deployment("stray", "nobodys", 10**6)}
    graph = Graph(objects_of(graphs.resources(program)), configured)
    pack.judge(graph, configured, said.append, lambda text, urn=None: refused.append(text))
    return said, refused


def of(rule: str, lines: list[str]) -> list[str]:
    return [line for line in lines if f"{rule}: " in line]


def test_without_configuration_every_rule_is_mandatory() -> None:
    assert enforcement({}, IDS) == {}
    assert enforcement({"rules": {"rollout": {"level": "mandatory"}}}, IDS) == {}


@pytest.mark.parametrize("level", [Level.ADVISORY, Level.DISABLED])
def test_a_rule_is_turned_down_with_its_reason(level: Level) -> None:
    rules = {"rollout": {"level": level.value, "reason": WHY}}
    assert enforcement({"rules": rules}, IDS) == {"rollout": Enforcement(level, WHY)}
    assert f"gpu-tenancy: warning: the rule rollout is {level}: {WHY}" in verdict(rules)[0]


def test_what_an_advisory_rule_finds_is_said_and_not_refused() -> None:
    (before,) = of("seats", verdict(None)[1])
    said, refused = verdict({"seats": {"level": "advisory", "reason": WHY}})
    assert (of("seats", refused), f"gpu-tenancy: advisory: {before}" in said) == ([], True)
    assert of("device", refused), "the other rules refuse as before"


def test_a_disabled_rule_is_not_asked() -> None:
    said, refused = verdict({"seats": {"level": "disabled", "reason": WHY}})
    assert of("seats", refused) == []
    assert of("device", refused)
    assert not [line for line in said if "advisory" in line]


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([], "configuration.rules: must be a map (got [])"),
        ({"imagse": {"level": "advisory", "reason": WHY}}, "configuration.rules.imagse: unknown rule"),
        ({"rollout": {"level": "off", "reason": WHY}}, "rollout.level: must be one of mandatory, advisory, disabled"),
        ({"rollout": {"level": "disabled", "reason": " "}}, "rollout.reason: write why the rule is not mandatory"),
    ],
)
def test_what_is_wrong_turns_nothing_down(rules: Any, told: str) -> None:
    _, refused = verdict(rules)
    assert any(told in line for line in refused), refused
    assert set(verdict(None)[1]) <= set(refused)
