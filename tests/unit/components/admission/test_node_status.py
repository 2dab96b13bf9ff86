"""The policies' scope and completeness; that the API server enforces them, the cluster tests show."""

import json
from importlib import resources
from typing import Any

import pytest

from components.admission import cel, node_status
from tenancy.names import Names

NAMES = Names("example.com")
POLICIES = {
    "reconcile-writes": node_status.reconcile_writes(NAMES, "system"),
    "capacity-writers": node_status.capacity_writers(NAMES, "system"),
}


def expressions(policy: dict[str, Any]) -> str:
    return "\n".join(validation["expression"] for validation in policy["spec"]["validations"])


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_policy_judges_every_write_to_a_nodes_status_and_fails_closed(policy: dict[str, Any]) -> None:
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert policy["spec"]["matchConstraints"]["resourceRules"] == [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes/status"]}
    ]


def test_every_field_of_the_status_but_the_two_maps_is_held() -> None:
    schemas = resources.files("kubernetes_validate") / "kubernetes-json-schema" / "v1.36.0-local"
    status = json.loads((schemas / "nodestatus-v1.json").read_text())["properties"]
    assert {"capacity", "allocatable", *node_status.STATUS} == set(status)
    held = expressions(POLICIES["reconcile-writes"])
    for field in node_status.STATUS:
        assert f"object.?status.{field} == oldObject.?status.{field}" in held


def test_what_the_status_strategy_leaves_writable_beside_the_status_is_held() -> None:
    held = expressions(POLICIES["reconcile-writes"])
    for field in ("labels", "annotations", "ownerReferences", "finalizers"):
        assert f"object.?metadata.{field} == oldObject.?metadata.{field}" in held


def test_each_policy_speaks_of_its_own_accounts() -> None:
    account = "system:serviceaccount:system:gpumem-reconcile"
    (ours,) = POLICIES["reconcile-writes"]["spec"]["matchConditions"]
    assert ours["expression"] == f"request.userInfo.username == {cel.text(account)}"
    (others,) = POLICIES["capacity-writers"]["spec"]["matchConditions"]
    assert others["expression"].startswith("!(")
    for allowed in (account, "system:nodes", "system:masters", "system:serviceaccount:kube-system:"):
        assert allowed in others["expression"]


def test_the_keys_of_a_retired_domain_may_go_and_may_not_be_written() -> None:
    """Of the old map a key of their kind may be gone; of the new one every key is ours or as it was."""
    for field in ("capacity", "allocatable"):
        (kept,) = (e for e in expressions(POLICIES["reconcile-writes"]).splitlines() if f"{field}Old.all" in e)
        of_the_new, of_the_old = kept.split(f" && variables.{field}Old.all")
        assert "endsWith" not in of_the_new
        for suffix in ("/gpumem", "/gpu-count"):
            assert f"k.endsWith({cel.text(suffix)})" in of_the_old


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_refusal_names_both_keys_or_the_field(policy: dict[str, Any]) -> None:
    for validation in policy["spec"]["validations"]:
        message = validation["message"]
        assert "example.com/gpumem and example.com/gpu-count" in message or "may not change" in message
