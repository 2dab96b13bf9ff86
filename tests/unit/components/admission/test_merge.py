"""Tests that a merged policy denies and changes the same requests as its parts."""

from collections.abc import Mapping
from typing import Any

from components.base.manifest import Manifest
from tenancy.admission.merge import merged
from tenancy.admission.policy import (
    Scope,
    in_namespaces,
    outside_namespaces,
    validating,
)
from tenancy.policy_names import GPU_BUDGET, GPU_COUNT_USE, GPU_TENANTS


def part(
    name: str,
    namespaces: Mapping[str, Any],
    conditions: Mapping[str, str],
    validations: Mapping[str, str],
    variables: Mapping[str, str] | None = None,
) -> Manifest:
    return validating(name, Scope(namespaces, conditions), validations, variables)


def expressions(policy: Manifest, key: str) -> list[str]:
    return [each["expression"] for each in policy["spec"].get(key, [])]


def test_each_validation_keeps_its_message_and_holds_wherever_its_part_does_not_judge() -> None:
    first = part(GPU_BUDGET, outside_namespaces(["tts"]), {"reaches-a-gpu": "gpu"}, {"has": "no budget"}, {"sum": "1"})
    second = part(GPU_TENANTS, outside_namespaces(["tts"]), {"is-large": "large", "asks": "gpu"}, {"false": "nobody"})
    third = part(GPU_COUNT_USE, outside_namespaces(["tts"]), {}, {"fits": "lower it"})
    (policy,) = merged([first, second, third])
    assert policy["metadata"]["name"] == GPU_BUDGET
    assert "matchConditions" not in policy["spec"]  # The third part judges every pod.
    assert policy["spec"]["matchConstraints"] == first["spec"]["matchConstraints"]
    assert policy["spec"]["variables"] == [
        {"name": "reaches_a_gpu", "expression": "gpu"},
        {"name": "sum", "expression": "1"},
        {"name": "is_large", "expression": "large"},
    ]
    assert policy["spec"]["validations"] == [
        {"expression": "(variables.reaches_a_gpu ? (has) : true)", "message": "no budget"},
        {"expression": "(variables.is_large && variables.reaches_a_gpu ? (false) : true)", "message": "nobody"},
        {"expression": "(fits)", "message": "lower it"},
    ]


def test_a_namespace_that_only_one_part_selects_is_selected() -> None:
    parts = [
        part(GPU_BUDGET, outside_namespaces(["agents"]), {}, {"a": "a"}),
        part(GPU_COUNT_USE, in_namespaces(["agents"]), {}, {"c": "c"}),
    ]
    (policy,) = merged(parts)
    assert policy["spec"]["matchConstraints"]["namespaceSelector"] == outside_namespaces()
    assert expressions(policy, "validations") == [
        "(!variables.gpu_budget_exceptions ? (a) : true)",
        "((variables.gpu_budget_exceptions) ? (c) : true)",
    ]
