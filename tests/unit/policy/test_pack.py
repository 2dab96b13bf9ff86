"""Tests the policy pack's interface to Pulumi, and its output for operators."""

import pulumi_policy
import pytest
import yaml

from policy.graph import Graph
from policy.pack import stack_policy
from policy.rule import Rule
from policy.rules import violations
from policy.unknown import Unknown, unknown
from tenancy import names
from tests.support import graphs
from tests.support.paths import ROOT

PACK = ROOT / "policy"


def test_the_policy_is_mandatory_and_is_one() -> None:
    policy = stack_policy()
    assert policy.enforcement_level is pulumi_policy.EnforcementLevel.MANDATORY
    assert isinstance(policy, pulumi_policy.StackValidationPolicy)
    assert policy.name == names.POLICY
    assert "\n" not in policy.description


def test_the_pack_runs_in_the_projects_environment() -> None:
    declared = yaml.safe_load((PACK / "PulumiPolicy.yaml").read_text())
    assert declared["name"] == names.POLICY_PACK
    assert declared["runtime"] == {"name": "python", "options": {"virtualenv": "../.venv"}}


def test_what_all_objects_of_a_rule_share_and_is_unknown_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Rule("shared", (), lambda graph: bool(Unknown("spec.x")))  # type: ignore[arg-type,return-value]
    monkeypatch.setattr("policy.rules.RULES", (rule,))
    assert [str(v) for v in violations(Graph(()))] == [f"shared: cannot be proven: {unknown('spec.x')}"]


def test_a_bug_in_a_rule_ends_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy.rules.RULES", (Rule("broken", (), lambda graph: graph.no_such_field),))
    with pytest.raises(AttributeError):
        graphs.judge({})
