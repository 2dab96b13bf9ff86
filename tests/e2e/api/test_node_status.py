"""Tests the two policies of prod that limit writes to nodes/status, in a real API server."""

from collections.abc import Mapping
from typing import Any

import pytest

from components.admission import node_status
from tenancy.admission.policy import binding
from tenancy.names import Names
from tests.support.e2e.server import ADMIN, RECONCILE, WATCHDOG, ApiAnswer, ApiServer
from tests.support.waiting import eventually

SYSTEM = "gpu-tenancy-system"
NAMES = Names("example.org")
# The stack's domain has changed from example.com to example.org.
HELD = {"cpu": "8", "example.com/gpumem": "14k", "example.com/gpu-count": "1", "nvidia.com/gpu": "1"}


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    server.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}, "nodes")
    assert patch(server, {"capacity": HELD, "allocatable": HELD}, user=ADMIN, dry_run=False).refusal is None
    rbac = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}
    role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "patch"}}
    server.apply({**role, "rules": [rule]}, "clusterroles")
    subjects = [{"apiGroup": rbac, "kind": "User", "name": user} for user in (RECONCILE, WATCHDOG)]
    bound = {"roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "patch"}, "subjects": subjects}
    server.apply({**role, "kind": "ClusterRoleBinding", **bound}, "clusterrolebindings")
    for policy in (node_status.reconcile_writes(NAMES, SYSTEM), node_status.capacity_writers(NAMES, SYSTEM)):
        server.apply(policy, "validatingadmissionpolicies")
        server.apply(binding(policy), "validatingadmissionpolicybindings")
    forbidden = both({NAMES.gpumem: "1", "cpu": "9"})
    eventually(
        lambda: all(patch(server, forbidden, user=user).code == 422 for user in (RECONCILE, WATCHDOG)),
        "both policies are in force",
        lambda: [patch(server, forbidden, user=user) for user in (RECONCILE, WATCHDOG)],
    )
    return server


def both(values: Mapping[str, str | None]) -> dict[str, Any]:
    return {"capacity": values, "allocatable": values}


def patch(
    server: ApiServer, status: Mapping[str, Any], *, user: str, dry_run: bool = True, **metadata: Any
) -> ApiAnswer:
    return server.request(
        "PATCH",
        f"/api/v1/nodes/node/status{'?dryRun=All' if dry_run else ''}",
        {"status": status, "metadata": metadata},
        user=user,
        content_type="application/merge-patch+json",
    )


def test_reconcile_writes_its_two_keys(cluster: ApiServer) -> None:
    written = patch(cluster, both({NAMES.gpumem: "14k", NAMES.gpu_count: "1"}), user=RECONCILE)
    assert written.refusal is None
    assert written.body["status"]["capacity"] == {**HELD, NAMES.gpumem: "14k", NAMES.gpu_count: "1"}


def test_reconcile_takes_the_keys_of_a_retired_domain_off(cluster: ApiServer) -> None:
    gone = patch(cluster, both({"example.com/gpumem": None, "example.com/gpu-count": None}), user=RECONCILE)
    assert gone.refusal is None
    assert gone.body["status"]["allocatable"] == {"cpu": "8", "nvidia.com/gpu": "1"}


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a retired domain's amount": (both({"example.com/gpumem": "20k"}), {}, "may change only example.org/gpumem"),
    "a new domain's amount": (both({"example.net/gpumem": "20k"}), {}, "may change only example.org/gpumem"),
    "NVIDIA's devices": (both({"nvidia.com/gpu": None}), {}, "may change only example.org/gpumem"),
    "one map alone": ({"capacity": {NAMES.gpumem: "1"}}, {}, "must write example.org/gpumem and"),
    "a condition": ({"conditions": [{"type": "Ready", "status": "False"}]}, {}, "may not change status.conditions"),
    "a label": (both({NAMES.gpumem: "1"}), {"labels": {"a": "b"}}, "may not change metadata.labels"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_reconcile_writes_nothing_else(cluster: ApiServer, case: str) -> None:
    status, metadata, message = REFUSED[case]
    assert message in (patch(cluster, status, user=RECONCILE, **metadata).refusal or "")


def test_nobody_else_writes_the_two_keys(cluster: ApiServer) -> None:
    refusal = patch(cluster, both({NAMES.gpumem: "1"}), user=WATCHDOG).refusal
    assert "are advertised by gpumem-reconcile; change gpu-tenancy:pools in the stack instead" in (refusal or "")
    assert patch(cluster, both({"example.net/other": "1"}), user=WATCHDOG).refusal is None
