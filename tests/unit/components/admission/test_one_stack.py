"""Tests which updates replace the mark of a stack by another stack's."""

from typing import Any

import pytest
from cel_expr_python import cel
from cel_expr_python.ext.ext_optional import ExtOptional

from components.admission.one_stack import one_stack
from tenancy import names

A, B = "gpu-tenancy/a", "gpu-tenancy/b"
POLICY = one_stack()


def marked(stack: str | None, *, is_ours: bool = True) -> dict[str, Any]:
    labels = {"labels": names.labels("test")} if is_ours else {}
    return {"metadata": {"name": "x", **labels, **({"annotations": {names.STACK: stack}} if stack else {})}}


def is_denied(before: str | None, after: str | None, *, was_ours: bool = True) -> bool:
    kinds = dict.fromkeys(("object", "oldObject"), cel.Type.DYN)
    environment = cel.NewEnv(variables=kinds, extensions=[ExtOptional()])
    objects = {"object": marked(after), "oldObject": marked(before, is_ours=was_ours)}

    def holds(expression: str) -> bool:
        return bool(environment.compile(expression).eval(data=objects).value())

    (condition,), validations = POLICY["spec"]["matchConditions"], POLICY["spec"]["validations"]
    return holds(condition["expression"]) and not all(holds(each["expression"]) for each in validations)


@pytest.mark.parametrize(
    ("before", "after", "denied"),
    [(A, B, True), (A, A, False), (A, None, False), (None, A, False), (None, None, False)],
    ids=["another stack", "its own stack", "handed over", "taken over by a person", "of nobody"],
)
def test_only_another_stacks_mark_is_denied(before: str | None, after: str | None, denied: bool) -> None:
    assert is_denied(before, after) is denied


def test_an_object_of_somebody_else_gets_no_mark() -> None:
    assert is_denied(None, A, was_ours=False)
    assert not is_denied(A, A, was_ours=False)


def test_the_policy_judges_updates_of_every_kind_and_looks_only_at_our_objects() -> None:
    constraints = POLICY["spec"]["matchConstraints"]
    assert constraints["objectSelector"] == {"matchLabels": {names.LABEL_PART_OF: "gpu-tenancy"}}
    assert constraints["resourceRules"] == [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*"]}
    ]
