"""Pods for the admission tests, and prod's policies in force on an API server."""

from typing import Any

from stacks import platform, settings
from tests.e2e.api.server import ApiAnswer, ApiServer
from tests.e2e.rollout import eventually
from tests.support.engine import build
from tests.support.prod import Change, raw

GPU, GPUMEM, GPU_COUNT = "nvidia.com/gpu", "viktorbarzin.me/gpumem", "viktorbarzin.me/gpu-count"
DEVICE = "device.viktorbarzin.me/uuid"
PLURALS = {
    "Namespace": "namespaces",
    "PriorityClass": "priorityclasses",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}

Pod = dict[str, Any]


def container(name: str = "main", *, limits: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox:1.37.0", "resources": {"limits": limits or {}}, **fields}


def pod(*containers: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> Pod:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "annotations": annotations or {}},
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def gpu_pod(mib: str | None = "3000", **spec: Any) -> Pod:
    return pod(container(limits={GPU: "1", **({GPUMEM: mib} if mib else {})}), **spec)


def env(**variable: Any) -> dict[str, Any]:
    return {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", **variable}]}


def field(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def host_path(path: str) -> Pod:
    return pod(volumes=[{"name": "host", "hostPath": {"path": path}}])


def create(server: ApiServer, namespace: str, manifest: Pod, *, dry_run: bool = True) -> ApiAnswer:
    return server.request("POST", f"/api/v1/namespaces/{namespace}/pods{'?dryRun=All' if dry_run else ''}", manifest)


def put_into_force(server: ApiServer, *changes: Change) -> None:
    """Prod's namespaces, classes and policies, with its configuration changed."""
    config = raw()
    for change in changes:
        change(config)
    prod = settings.parse(config)
    for manifest in build(lambda: platform.build(prod)).objects():
        if manifest["kind"] in PLURALS:
            server.apply(manifest, PLURALS[manifest["kind"]])
    runtime_class = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    server.apply({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", **runtime_class}, "runtimeclasses")
    server.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}, "nodes")
    server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nvidia"}}, "namespaces")
    # The API server picks policies up in its own time, the two kinds apart.
    eventually(
        lambda: create(server, "immich", gpu_pod()).body.get("spec", {}).get("priorityClassName") == "gpu-workload",
        "pods with a GPU are stamped",
    )
    eventually(
        lambda: create(server, "immich", pod(priorityClassName="tier-2-gpu")).refusal is not None,
        "a pod of another class is refused",
    )
