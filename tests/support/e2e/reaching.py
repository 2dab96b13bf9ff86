"""Builds requests by which a tenant tries to get a GPU."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tenancy import names
from tests.support.e2e.admitted import create, pod
from tests.support.e2e.server import ApiServer
from tests.support.waiting import eventually
from toolchain.cluster.api import ApiAnswer

HIDDEN = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
RESOURCE_API = "/apis/resource.k8s.io/v1"
# Maps RuntimeClasses to their handlers.
HANDLERS = {"nvidia-cdi": "nvidia-cdi", "gvisor": "runsc", "fast": "nvidia-experimental"}
# A namespace that belongs to no tenant.
SOMEWHERE = "monitoring"


def add_runtime_classes(server: ApiServer, handlers: Mapping[str, str]) -> None:
    """Creates the RuntimeClasses, and waits until the policy on RuntimeClasses judges by the last of them."""
    for name, handler in handlers.items():
        runtime_class = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}}
        server.apply({**runtime_class, "handler": handler}, "runtimeclasses")
    refusal = partial(create, server, SOMEWHERE, pod(runtimeClassName="fast"))
    eventually(lambda: "without a budget" in str(refusal().refusal), "NVIDIA's runtime needs a budget", refusal)


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
