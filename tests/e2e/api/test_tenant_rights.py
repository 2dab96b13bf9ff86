"""What the role `edit` does not give a tenant: more than he was given. A real API server."""

from typing import Any

import pytest

from tenancy import names
from tests.e2e.api.server import ApiServer
from tests.e2e.api.tenant import TENANT, let_edit
from tests.e2e.rollout import eventually

HOME = "/api/v1/namespaces/chat"
SYSTEM = "/api/v1/namespaces/gpu-tenancy-system"
MERGE = "application/merge-patch+json"
QUOTA = f"{HOME}/resourcequotas/{names.SEATS}"
GPUMEM = "example.org/gpumem"


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    for name in ("chat", "gpu-tenancy-system"):
        server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "namespaces")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": names.SEATS}}
    server.create(f"{HOME}/resourcequotas", {**quota, "spec": {"hard": {f"requests.{GPUMEM}": "3k"}}})
    ledger = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names.LEDGER}}
    server.create(f"{SYSTEM}/configmaps", {**ledger, "data": {names.LEDGER_KEY: "{}"}})
    server.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}, "nodes")
    let_edit(server, "chat")
    eventually(lambda: server.request("GET", f"{HOME}/pods", user=TENANT).refusal is None, "the tenant may edit")
    return server


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("PATCH", QUOTA, {"spec": {"hard": {f"requests.{GPUMEM}": "9k"}}}, 'cannot patch resource "resourcequotas"'),
        ("DELETE", QUOTA, None, 'cannot delete resource "resourcequotas"'),
        ("PATCH", f"{SYSTEM}/configmaps/{names.LEDGER}", {"data": {}}, 'cannot patch resource "configmaps"'),
        ("PATCH", "/api/v1/nodes/node/status", {"status": {}}, 'cannot patch resource "nodes/status"'),
        ("PATCH", HOME, {"metadata": {"labels": {"a": "b"}}}, 'cannot patch resource "namespaces"'),
        ("POST", f"{HOME}/pods/pod/binding", {}, 'cannot create resource "pods/binding"'),
    ],
    ids=["a larger quota", "no quota", "another ledger", "capacity", "the namespace", "a binding"],
)
def test_a_tenant_gives_itself_no_more(cluster: ApiServer, method: str, path: str, body: Any, words: str) -> None:
    kind = MERGE if method == "PATCH" else "application/json"
    answer = cluster.request(method, path, body, user=TENANT, content_type=kind)
    assert (answer.code, words in (answer.refusal or "")) == (403, True)
