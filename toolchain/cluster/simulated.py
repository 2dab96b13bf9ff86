"""Runs kwok, which simulates Ready nodes. A pod on a simulated node is Running at once, but has no containers."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from toolchain.cluster.paths import TOOLCHAIN, Folder, program
from toolchain.cluster.process import Command

Manifest = dict[str, Any]

# The simulated nodes in those pools of prod that share devices by GPU memory.
SHARED = ("k8s-node1", "node-4")
# The exporter does not tolerate the taint of node-4. Therefore the agents report missing readings of node-4 at once.
UNMEASURED = "gpu-tenancy/unmeasured"
MANAGED = {"kwok.x-k8s.io/node": "fake"}
# A Job's pod completes when a test adds the annotation gpu-tenancy/complete=true.
COMPLETE = "gpu-tenancy/complete"
# A deleted pod with this annotation stays until a test removes the annotation. A lingering pod acts like a pod with a
# long grace period.
LINGERS = "gpu-tenancy/lingers"
# The pods of Kueue become Ready when they get this annotation.
READY = "gpu-tenancy/ready"
KUEUE = {"app.kubernetes.io/name": "kueue"}

_STAGES = TOOLCHAIN / "kwok-stages"
_UNCHANGED = ("node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease")
_HARDWARE = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"}


def kwok(folder: Folder) -> Command:
    stages = folder.path / "stages.yaml"
    stages.write_text(yaml.safe_dump_all(_stages()))
    selector = ",".join(f"{key}={value}" for key, value in MANAGED.items())
    return Command(
        name="kwok",
        arguments=(
            program("kwok"),
            f"--kubeconfig={folder.kubeconfig_of('kwok')}",
            f"--config={stages}",
            f"--manage-nodes-with-annotation-selector={selector}",
            "--node-ip=127.0.0.1",
            "--cidr=10.1.0.0/16",
            "--node-lease-duration-seconds=40",
        ),
    )


def node(name: str, *, labels: Mapping[str, str], resources: Mapping[str, str], taint: str | None = None) -> Manifest:
    """Returns a Node with the fields that the kubelet, NVIDIA's device plugin and feature discovery would write."""
    capacity = {**_HARDWARE, **resources}
    taints = [{"key": taint, "value": "present", "effect": "NoSchedule"}] if taint else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": MANAGED,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **labels,
            },
        },
        "spec": {"taints": taints},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def gpu_labels(*, sharing: str, replicas: int) -> dict[str, str]:
    """Returns the labels that NVIDIA's feature discovery gives a node with one Tesla T4."""
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.product": "Tesla-T4-SHARED" if replicas > 1 else "Tesla-T4",
        "nvidia.com/gpu.family": "turing",
        "nvidia.com/gpu.memory": "15360",
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": sharing,
    }


def nodes() -> list[Manifest]:
    """Returns the nodes of the prod stack, and two nodes without a GPU."""
    return [
        node(
            "k8s-node1",
            labels=gpu_labels(sharing="time-slicing", replicas=100),
            resources={"nvidia.com/gpu": "100"},
        ),
        node(
            "k8s-node2",
            labels=gpu_labels(sharing="none", replicas=1),
            resources={"nvidia.com/gpu": "1"},
            taint="nvidia.com/gpu",
        ),
        node(
            "node-4",
            labels=gpu_labels(sharing="none", replicas=1),
            resources={"memory": "61Gi", "nvidia.com/gpu": "1"},
            taint=UNMEASURED,
        ),
        node("node-5", labels={}, resources={}),
        node("node-6", labels={}, resources={}),
    ]


def devices(node: str, domain: str) -> Manifest:
    """Returns the ResourceSlice that the exporter publishes for a node with one Tesla T4."""
    driver = f"gpumem.{domain}"
    device = {
        "name": "gpu-0",
        "attributes": {"uuid": {"string": f"GPU-{node}"}, "index": {"int": 0}},
        "capacity": {"memory": {"value": "15360Mi"}},
        "allowMultipleAllocations": True,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{driver}-{node}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        },
    }


def is_ready(node: Mapping[str, Any]) -> bool:
    """Returns True if the node is Ready and has none of the taints of a new node."""
    conditions = node.get("status", {}).get("conditions", [])
    taints = node.get("spec", {}).get("taints", [])
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and not any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)


def kwok_rights() -> Iterable[tuple[str, Manifest]]:
    """Yields a ClusterRole and its binding, which give kwok the rights of a kubelet on every node."""
    core = [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["nodes/status", "pods/status"], "verbs": ["update", "patch"]},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["get", "list", "watch", "create", "update", "patch"],
        },
    ]
    group = "rbac.authorization.k8s.io"
    head = {"apiVersion": f"{group}/v1", "metadata": {"name": "kwok"}}
    yield "clusterroles", {**head, "kind": "ClusterRole", "rules": core}
    yield (
        "clusterrolebindings",
        {
            **head,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "kwok"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "kwok"}],
        },
    )


def _stages() -> list[Manifest]:
    """Returns kwok's Stage objects, with two variants of `pod-ready`.

    One variant is for Kueue's pods, which become Ready only when they have the annotation READY.
    """
    (label, name), is_ready = next(iter(KUEUE.items())), f'.metadata.annotations["{READY}"]'
    is_kueue = f'.metadata.labels["{label}"]'
    completed = _narrowed("pod/general/pod-complete", (f'.metadata.annotations["{COMPLETE}"]', "Exists", None))
    completed["spec"]["delay"] = {"durationMilliseconds": 0}
    return [
        *(_stage(name) for name in _UNCHANGED),
        _narrowed("pod/fast/pod-delete", (f'.metadata.annotations["{LINGERS}"]', "DoesNotExist", None)),
        _narrowed("pod/fast/pod-ready", (is_kueue, "NotIn", [name])),
        _narrowed("pod/fast/pod-ready", (is_kueue, "In", [name]), (is_ready, "In", ["true"]), name="kueue-ready"),
        completed,
    ]


def _narrowed(path: str, *conditions: tuple[str, str, list[str] | None], name: str | None = None) -> Manifest:
    stage = _stage(path)
    stage["metadata"]["name"] = name or stage["metadata"]["name"]
    for key, operator, values in conditions:
        expression = {"key": key, "operator": operator} | ({"values": values} if values else {})
        stage["spec"]["selector"]["matchExpressions"].append(expression)
    return stage


def _stage(path: str) -> Manifest:
    stage: Manifest = yaml.safe_load(Path(_STAGES / f"{path}.yaml").read_text())
    return stage
