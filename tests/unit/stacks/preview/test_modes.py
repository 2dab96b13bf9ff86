"""Tests that a preview lists the parts that change their mode."""

from typing import Any

import pytest

from stacks.preview.events import Op, Resource
from stacks.preview.modes import changed_modes

SAME = Resource(urn="urn:pulumi:x::p::kubernetes:core/v1:ConfigMap::ledger", parent="", op=Op.SAME)


def resource(kind: str, name: str, op: Op, before: Any = None, after: Any = None, *, namespace: str = "") -> Resource:
    def inputs(given: Any) -> dict[str, Any]:
        return {} if given is None else {"metadata": {"name": name, "namespace": namespace}, **given}

    urn = f"urn:pulumi:x::p::kubernetes:g/v1:{kind}::{name}"
    return Resource(urn=urn, parent="", op=op, before=inputs(before), inputs=inputs(after))


def does(*actions: str) -> dict[str, Any]:
    return {"spec": {"validationActions": [*actions]}}


def dry(value: str) -> dict[str, Any]:
    pod = {"containers": [{"env": [{"name": "DRY_RUN", "value": value}]}]}
    return {"spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}}


def level(mode: str) -> dict[str, Any]:
    return {"metadata": {"name": "immich", "labels": {f"pod-security.kubernetes.io/{mode}": "baseline"}}}


BUDGET = "ValidatingAdmissionPolicyBinding", "gpu-budget"
STAMP = "MutatingAdmissionPolicyBinding", "stamp"
CASES: dict[str, tuple[Resource, list[str]]] = {
    "a policy": (
        resource(*BUDGET, Op.UPDATE, does("Warn", "Audit"), does("Deny")),
        ["policies begin to deny: gpu-budget"],
    ),
    "a policy back": (
        resource(*BUDGET, Op.UPDATE, does("Deny"), does("Warn", "Audit")),
        ["policies only warn from now on: gpu-budget"],
    ),
    "a policy that goes": (resource(*BUDGET, Op.DELETE, does("Deny")), ["policies only warn from now on: gpu-budget"]),
    "another field": (resource(*BUDGET, Op.UPDATE, does("Deny"), does("Deny")), []),
    "a stamp": (resource(*STAMP, Op.CREATE, None, {}), ["policies begin to change pods: stamp"]),
    "a stamp back": (resource(*STAMP, Op.DELETE, {}), ["policies no longer change pods: stamp"]),
    "a quota": (
        resource("ResourceQuota", "seats", Op.CREATE, None, {}, namespace="immich"),
        ["tenants get a quota: immich"],
    ),
    "a quota that changes": (resource("ResourceQuota", "seats", Op.UPDATE, {}, {}, namespace="immich"), []),
    "a namespace": (
        resource("NamespacePatch", "immich", Op.UPDATE, level("warn"), level("enforce")),
        ["namespaces begin to enforce Pod Security: immich"],
    ),
    "an agent": (
        resource("CronJob", "watchdog", Op.UPDATE, dry("true"), dry("false")),
        ["agents begin to act: watchdog"],
    ),
    "an agent that acted": (resource("CronJob", "watchdog", Op.UPDATE, dry("false"), dry("false")), []),
    "the guard": (
        resource("DaemonSet", "memory-guard-node-4", Op.CREATE, None, {}),
        ["agents on nodes begin to act: memory-guard-node-4"],
    ),
    "the exporter": (resource("DaemonSet", "gpu-memory-exporter", Op.CREATE, None, {}), []),
}


@pytest.mark.parametrize("case", CASES)
def test_what_begins_or_ends_is_named(case: str) -> None:
    changed, lines = CASES[case]
    assert changed_modes([SAME, changed]) == lines


def test_of_a_new_stack_nothing_is_named_because_all_of_it_begins() -> None:
    assert changed_modes([resource(*STAMP, Op.CREATE, None, {})]) == []
