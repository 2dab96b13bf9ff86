"""Tests how a preview reads the events of Pulumi's engine."""

import pytest

from stacks.preview.events import Op, read
from tests.support.streams import (
    STACK,
    component,
    events,
    judged,
    lines,
    root,
    said,
    step,
    summary,
    urn,
    violation,
)

MAP = urn("ConfigMap", "ledger")


@pytest.mark.parametrize(
    ("steps", "op"),
    [
        (["create"], Op.CREATE),
        (["same"], Op.SAME),
        (["refresh", "same"], Op.SAME),
        (["refresh", "update"], Op.UPDATE),
        (["import"], Op.IMPORT),
        (["delete"], Op.DELETE),
        (["delete-replaced"], Op.DELETE),
        (["create-replacement", "replace", "delete-replaced"], Op.REPLACE),
        (["delete-replaced", "same"], Op.DELETE),
        (["what a later Pulumi does"], Op.UPDATE),
    ],
)
def test_the_steps_of_a_resource_are_one_operation(steps: list[str], op: Op) -> None:
    found = events(root(), *(step(name, MAP) for name in steps))
    assert {urn: resource.op for urn, resource in found.resources.items()} == {STACK: Op.SAME, MAP: op}


def test_a_resource_is_called_by_its_kind_and_name() -> None:
    assert events(step("create", MAP)).resources[MAP].label == "ConfigMap ledger"
    assert events(step("create", component("Tenant", "a::b"))).resources[component("Tenant", "a::b")].label == (
        "Tenant a::b"
    )


def test_a_replacement_names_what_forces_it() -> None:
    detailed = {"data": {"diffKind": "update"}, "spec.selector": {"diffKind": "update-replace"}}
    assert events(step("replace", MAP, detailedDiff=detailed)).resources[MAP].properties == ("spec.selector",)
    assert events(step("replace", MAP, keys=["spec"], diffs=["data"])).resources[MAP].properties == ("spec",)
    assert events(step("update", MAP, detailedDiff=None, diffs=["data"])).resources[MAP].properties == ("data",)


def test_a_line_that_is_no_event_is_kept_as_it_is() -> None:
    strays = ["plugin: hello", '{"sequence": 1, "policyEvent": {}}', "[]", '{"error": "no event"}', '{"sequence": 2']
    found = read([*lines([{"cancelEvent": {}}]), "\n", *(f"{line}\n" for line in strays)])
    assert found.strays == strays


def test_pulumis_marks_for_colours_are_left_out() -> None:
    found = events(said("error", "<{%fg 1%}>boom<{%reset%}>\n"), violation("<{%fg 1%}>budgets<{%reset%}>"))
    assert [said.text for said in found.diagnostics] == ["error: boom"]
    assert [violation.message.splitlines()[-1] for violation in found.violations] == ["budgets"]


def test_only_a_summary_that_says_so_is_a_success() -> None:
    assert not events(judged()).succeeded
    assert not events(summary("failed")).succeeded
    assert events(summary()).succeeded
