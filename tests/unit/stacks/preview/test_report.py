"""Tests the report and the exit code of a preview."""

import pytest

from stacks.preview.report import PreviewOutcome, report
from tests.support.streams import (
    Event,
    component,
    judged,
    root,
    run,
    said,
    step,
    summary,
    urn,
    violation,
)

IMMICH, CAPACITY = component("Tenant", "immich"), component("Capacity", "capacity")
CHART = "t4: the chart\n"
ACCEPTED = (judged(), summary())
REFUSED = (violation("budgets: too much"), judged("failed"), said("error", "preview failed\n"), summary("failed"))


def text(of: PreviewOutcome, *, colour: bool = False) -> str:
    return report(of, CHART, colour=colour)


def blocks(of: PreviewOutcome) -> list[str]:
    return text(of).rstrip("\n").split("\n\n")


def tenants(*names: str, op: str = "create") -> list[Event]:
    found = []
    for name in names:
        tenant = component("Tenant", name)
        found += [step(op, tenant), step(op, urn("Namespace", name), parent=tenant)]
    return found


def test_an_accepted_preview_ends_with_the_chart_and_the_verdict() -> None:
    first = run(root("create"), *tenants("immich"), step("create", CAPACITY), *ACCEPTED)
    assert text(first) == (
        "lab: + 4 to create\n"
        "  Capacity               + 1 to create\n"
        "  Stack gpu-tenancy-lab  + 1 to create\n"
        "  Tenant immich          + 2 to create\n"
        "  FULL=1 lists every resource, ARGS=--diff every property\n"
        "\n"
        "t4: the chart\n"
        "\n"
        "✅ gpu-tenancy accepts lab (1.2 s)\n"
    )
    assert first.exit_code == 0


def test_an_update_names_the_resource_and_what_differs() -> None:
    quota = step("update", urn("ResourceQuota", "immich"), parent=IMMICH, diffs=["a", "b", "c", "d", "e"])
    changes, *_ = blocks(run(root(), step("same", IMMICH), quota, *tenants("tts", op="same"), *ACCEPTED))
    assert changes.splitlines()[:-1] == [
        "lab: ~ 1 to update, 4 unchanged",
        "  Tenant immich  ~ 1 to update, 1 unchanged",
        "      ~  ResourceQuota immich: a, b, c and 2 more",
    ]


def test_every_replacement_and_deletion_is_named_and_not_every_update() -> None:
    many = [step("update", urn("Role", f"u{n:02}"), parent=IMMICH) for n in range(30)]
    gone = [step("delete", urn("Role", f"d{n:02}"), parent=IMMICH) for n in range(30)]
    new = [step("replace", urn("Role", f"r{n:02}"), parent=IMMICH, keys=["spec"]) for n in range(30)]
    changes, *_ = blocks(run(root(), step("same", IMMICH), *many, *gone, *new, *ACCEPTED))
    assert [f"      -  Role d{n:02}" for n in range(30)] == [line for line in changes.splitlines() if " -  " in line]
    assert [f"      +- Role r{n:02}: spec" for n in range(30)] == [
        line for line in changes.splitlines() if ": spec" in line
    ]
    assert changes.count("      ~  Role ") == 8
    assert "      and 22 more to update" in changes


def test_a_refusal_is_the_last_block_and_the_generic_error_is_left_out() -> None:
    refused = run(root("create"), violation("gpu-quota: one more"), *REFUSED, code=255)
    assert text(refused).endswith(
        "\n\n❌ gpu-tenancy refuses lab (1.2 s)\n"
        "   Every promise on a GPU must fit.\n"
        "   gpu-quota: one more\n"
        "   budgets: too much\n"
    )
    assert "failed" not in text(refused)
    assert "as far as" not in text(refused)
    assert refused.exit_code == 255


def test_a_traceback_is_the_last_block_and_what_else_was_said_is_above_the_chart() -> None:
    trace = "Program failed with an unhandled exception:\nTraceback:\n  File x\nValueError: boom\n"
    failed = run(root("create"), said("warning", "old\n"), said("error", trace), summary("failed"), code=1)
    assert blocks(failed)[0].startswith("lab, as far as the preview came: + 1 to create")
    assert blocks(failed)[1:] == [
        "warning: old",
        "t4: the chart",
        "❌ the preview of lab failed (1.2 s)\n"
        "   error: Program failed with an unhandled exception:\n   Traceback:\n     File x\n   ValueError: boom",
    ]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([summary()], "did not judge it"),
        ([judged(pack="another"), summary()], "did not judge it"),
        ([judged(policy="another"), summary()], "did not judge it"),
        ([judged("disabled"), summary()], "did not judge it"),
        ([], "before the preview was complete"),
        ([judged()], "before the preview was complete"),
        ([judged(), summary("canceled")], "before the preview was complete"),
    ],
)
def test_a_preview_that_was_cut_short_or_not_judged_fails_though_pulumi_is_content(
    given: list[Event], reason: str
) -> None:
    assert run(*given).exit_code == 1
    assert reason in blocks(run(*given))[-1]


def test_a_mandatory_finding_fails_though_pulumi_is_content() -> None:
    refused = run(violation("budgets: too much"), judged("failed"), summary())
    assert refused.exit_code == 1
    assert blocks(refused)[-1].startswith("❌ gpu-tenancy refuses lab")


def test_advice_is_shown_and_refuses_nothing() -> None:
    advised = run(violation("labels: none", level="advisory", pack="house"), *ACCEPTED)
    assert advised.exit_code == 0
    assert blocks(advised)[-1] == (
        "⚠️ house warns\n   Every promise on a GPU must fit.\n   labels: none\n✅ gpu-tenancy accepts lab (1.2 s)"
    )


def test_an_interrupted_preview_is_never_a_success() -> None:
    interrupted = run(*ACCEPTED, said("info#err", "KeyboardInterrupt\n"), signalled=True)
    assert interrupted.exit_code == 130
    assert text(interrupted) == "❌ the preview of lab was interrupted (1.2 s)\n"
