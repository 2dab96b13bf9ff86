"""Builds requests by which a tenant tries to get a GPU."""

from typing import Any

from tenancy import names
from tests.support.e2e.admitted import create, pod
from tests.support.e2e.server import ApiServer
from toolchain.cluster.api import ApiAnswer

HIDDEN = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
RESOURCE_API = "/apis/resource.k8s.io/v1"
# A namespace that belongs to no tenant.
SOMEWHERE = "monitoring"


def in_force(server: ApiServer) -> bool:
    """The API server loads different policies after different delays."""
    return (
        environments(create(server, "immich", pod())) == [[HIDDEN]]
        and create(server, SOMEWHERE, pod(priorityClassName="system-node-critical")).refusal is not None
        and create(server, SOMEWHERE, pod(runtimeClassName="fast")).refusal is not None
        and configure(server, "team-a", "configmaps", "a", "NVIDIA_VISIBLE_DEVICES").refusal is not None
        and claim(server, "immich", "gpu.nvidia.com").refusal is not None
    )


def environments(answer: ApiAnswer, field: str = "containers") -> list[list[dict[str, Any]]]:
    assert answer.refusal is None, answer.refusal
    return [each.get("env", []) for each in answer.body["spec"].get(field, [])]


def configure(server: ApiServer, namespace: str, kind: str, name: str, key: str) -> ApiAnswer:
    data = {"data" if kind == "configmaps" else "stringData": {key: "all"}}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap" if kind == "configmaps" else "Secret", **data}
    path = f"/api/v1/namespaces/{namespace}/{kind}?dryRun=All"
    return server.request("POST", path, {**manifest, "metadata": {"name": name}})


def claim(
    server: ApiServer, namespace: str, device_class: str, *, template: bool = False, first: bool = False
) -> ApiAnswer:
    asked: dict[str, Any] = {"deviceClassName": device_class}
    request = {"firstAvailable": [{"name": "one", **asked}]} if first else {"exactly": asked}
    spec: dict[str, Any] = {"devices": {"requests": [{"name": "gpu", **request}]}}
    kind = "ResourceClaimTemplate" if template else "ResourceClaim"
    manifest = {"apiVersion": names.RESOURCE_API, "kind": kind, "metadata": {"name": "mine"}}
    path = f"{RESOURCE_API}/namespaces/{namespace}/{kind.lower()}s?dryRun=All"
    return server.request("POST", path, {**manifest, "spec": {"spec": spec} if template else spec})
