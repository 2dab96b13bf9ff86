"""Tests on a real API server who may write the ledger and the other ConfigMaps of the platform."""

from typing import Any

import pytest

from stacks import platform, settings
from tenancy import names
from tests.support.e2e.access import await_right
from tests.support.e2e.admitted import put_into_force
from tests.support.e2e.server import ApiServer
from tests.support.engine import build
from tests.support.prod import raw
from tests.support.waiting import becomes, eventually

SYSTEM = "gpu-tenancy-system"
NODES = names.node_agent_namespace(SYSTEM)
RBAC = "rbac.authorization.k8s.io"
PLURALS = {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"}
NAMESPACED = {"Role": "roles", "RoleBinding": "rolebindings"}
MERGE = "application/merge-patch+json"
LEDGER = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"
OPERATOR = "system:serviceaccount:web:operator"
RECONCILE = f"system:serviceaccount:{SYSTEM}:{names.RECONCILE}"
ONLY_FINALIZERS = "may change only metadata.finalizers of the ledger"


def metadata(**fields: Any) -> dict[str, Any]:
    return {"metadata": fields}


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    put_into_force(server)
    grant(server)
    grant_every_config_map(server)
    ledger = {"apiVersion": "v1", "kind": "ConfigMap", "data": {names.LEDGER_KEY: "{}"}}
    server.create(
        LEDGER.rpartition("/")[0], {**ledger, "data": {names.LEDGER_KEY: "{ }"}, **metadata(name=names.LEDGER)}
    )
    await_right(server.api, OPERATOR, "create", "configmaps", namespace=SYSTEM)
    eventually(lambda: ONLY_FINALIZERS in (refused_to_reconcile(server) or ""), "the policy on the ledger is in force")
    return server


def grant(server: ApiServer) -> None:
    prod = settings.parse(raw())
    for manifest in build(lambda: platform.build(prod)).objects():
        kind = manifest["kind"]
        if kind in PLURALS:
            server.apply(manifest, PLURALS[kind])
        elif kind in NAMESPACED and manifest["metadata"]["namespace"] != "kube-system":
            home = manifest["metadata"]["namespace"]
            server.create(f"/apis/{RBAC}/v1/namespaces/{home}/{NAMESPACED[kind]}", manifest)


def grant_every_config_map(server: ApiServer) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", **metadata(name="every-configmap"), "rules": rules}
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "every-configmap"}
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": "web"}
    bound = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", **metadata(name="every-configmap")}
    server.apply(role, "clusterroles")
    server.apply({**bound, "roleRef": ref, "subjects": [subject]}, "clusterrolebindings")


def refused_to_reconcile(server: ApiServer, **changes: Any) -> str | None:
    """Returns the refusal of reconcile's account's change of the ledger, or None."""
    body = changes or {"data": {names.LEDGER_KEY: "{}"}}
    return server.request("PATCH", f"{LEDGER}?dryRun=All", body, user=RECONCILE, content_type=MERGE).refusal


def test_reconcile_changes_nothing_of_the_ledger_but_its_finalizers(cluster: ApiServer) -> None:
    assert ONLY_FINALIZERS in (refused_to_reconcile(cluster) or "")
    becomes(lambda: refused_to_reconcile(cluster, **metadata(finalizers=None)), None, "reconcile lets the ledger go")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", LEDGER),
        ("DELETE", LEDGER),
        ("POST", LEDGER.rpartition("/")[0]),
        ("POST", f"/api/v1/namespaces/{NODES}/configmaps"),
    ],
)
def test_an_operator_with_the_right_to_every_configmap_changes_none_of_ours(
    cluster: ApiServer, method: str, path: str
) -> None:
    """Many Kubernetes operators may write ConfigMaps in every namespace."""

    def answer(name: str) -> str | None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {names.LEDGER_KEY: "{}"}, **metadata(name=name)}
        kind = MERGE if method == "PATCH" else "application/json"
        given = None if method == "DELETE" else body
        return cluster.request(method, f"{path}?dryRun=All", given, user=OPERATOR, content_type=kind).refusal

    assert "only the agents, and accounts that may change admission policies" in (answer(names.LEDGER) or "")
    if method == "POST":
        assert answer("istio-ca-root-cert") is None
