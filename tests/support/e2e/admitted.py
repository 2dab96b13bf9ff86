"""Builds pods for the admission tests, and creates prod's admission policies on an API server."""

import secrets
from collections.abc import Iterator
from typing import Any

from components.base.manifest import Manifest
from stacks import platform, settings
from tenancy.admission.policy import ResourceRule, Scope, binding, mutating, validating
from tenancy.names import JOB_CONTROLLERS, REPLICA_SET_CONTROLLERS
from tests.support.e2e.server import ADMIN, NAMESPACES, ApiAnswer, ApiServer
from tests.support.engine import build
from tests.support.prod import Change, raw
from tests.support.waiting import eventually

GPU, GPUMEM, GPU_COUNT = "nvidia.com/gpu", "viktorbarzin.me/gpumem", "viktorbarzin.me/gpu-count"
GPUS = {GPU: "1"}
DEVICE = "device.viktorbarzin.me/uuid"
QUEUES = "GPUs of this namespace are handed out by its queue"  # Each refusal's message contains this text.
# LAX is a tenant with the Pod Security level `privileged`. SEATLESS is a tenant without seats.
LAX, SEATLESS = "lax", "signoz"
# Each of these tenants has only the Deployment of the same name, which the demand gate starts.
ON_DEMAND = ("tts", "ebook2audiobook", "ytdlp")
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


def asks(**limits: str) -> Pod:
    return pod(container(limits={{"gpu": GPU, "mib": GPUMEM, "count": GPU_COUNT}[key]: n for key, n in limits.items()}))


def env(**variable: Any) -> dict[str, Any]:
    return {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", **variable}]}


def field(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def host_path(path: str) -> Pod:
    return pod(volumes=[{"name": "host", "hostPath": {"path": path}}])


def started(manifest: Pod, deployment: str) -> Pod:
    """Returns the pod as it comes from the Deployment that the demand gate starts."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{deployment}-0", "uid": "1", "controller": True}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def create(
    server: ApiServer, namespace: str, manifest: Pod, *, dry_run: bool = True, user: str | None = None
) -> ApiAnswer:
    """Creates a pod as `user`. By default, this is the operator, and in ON_DEMAND what the demand gate starts."""
    if user is None and namespace in ON_DEMAND:
        manifest, user = started(manifest, namespace), REPLICA_SET_CONTROLLERS[0]
    path = f"/api/v1/namespaces/{namespace}/pods{'?dryRun=All' if dry_run else ''}"
    return server.request("POST", path, manifest, user=user or ADMIN)


def queued(manifest: Pod) -> Pod:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "1", "controller": True}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def create_queued(server: ApiServer, namespace: str, manifest: Pod) -> ApiAnswer:
    return create(server, namespace, queued(manifest), user=JOB_CONTROLLERS[0])


def spec_of(answer: ApiAnswer) -> dict[str, Any]:
    return dict(answer.body.get("spec", {}))


def configuration(*changes: Change) -> settings.StackSettings:
    config = raw()
    config["admission"]["exempt_namespaces"] = ["nvidia"]
    config["tenants"][LAX] = {"pod_security": "privileged"}  # tests what budgets alone refuse
    for change in changes:
        change(config)
    return settings.parse(config)


def last_policies(name: str) -> Iterator[Manifest]:
    """Yields two policies with their bindings. Together, they refuse a ConfigMap of this name."""
    rules = [ResourceRule("CREATE", ("configmaps",))]
    scope = Scope(namespaces={}, conditions={"named": f"object.metadata.name == '{name}'"}, rules=rules)
    label = '[JSONPatch{op: "add", path: "/metadata/labels", value: {"seen": "yes"}}]'
    for policy in (mutating(name, scope, [label]), validating(name, scope, {"!has(object.metadata.labels)": name})):
        yield from (policy, binding(policy))


def await_policies(server: ApiServer) -> None:
    """Waits until all policies so far are in force. The API server reads all policies of a kind at the same time, in
    any order.
    """
    name = f"last-{secrets.token_hex(4)}"
    for manifest in last_policies(name):
        server.apply(manifest, PLURALS[manifest["kind"]])
    path = f"{NAMESPACES}/default/configmaps?dryRun=All"
    eventually(
        lambda: server.request("POST", path, {"metadata": {"name": name}}).refusal is not None,
        "the last policies are in force",
    )


def put_into_force(server: ApiServer, *changes: Change) -> None:
    prod = configuration(*changes)
    there = {each["metadata"]["name"] for each in (server.api.get(NAMESPACES) or {})["items"]}
    for manifest in build(lambda: platform.build(prod)).objects():
        is_there = manifest["kind"] == "Namespace" and manifest["metadata"]["name"] in there
        if manifest["kind"] in PLURALS and not is_there:
            server.apply(manifest, PLURALS[manifest["kind"]])
    runtime_class = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    server.apply({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", **runtime_class}, "runtimeclasses")
    server.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}, "nodes")
    await_policies(server)
    eventually(
        lambda: spec_of(create(server, "immich", gpu_pod())).get("priorityClassName") == "gpu-workload",
        "pods with a GPU are stamped",
    )
    eventually(
        lambda: create(server, "immich", pod(priorityClassName="tier-2-gpu")).refusal is not None,
        "a pod of another class is refused",
    )
