"""Builds the clusters of docs/records as they were before gpu-tenancy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.kube.nodes import NODES
from agents.kube.pods import PODS
from agents.kube.slices import SLICES
from gpumem import survey
from tenancy import names
from tests.support.kubectl import FakeApi

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
VERSION = "v1.36.3"
# Maps each resident of record 0000 to its usual use in MiB.
STEADY = {"immich-ml": 2150, "llama-swap": 4454, "frigate": 1946, "immich-server": 1229, "portal-stt": 1536}
NAMESPACE_OF = {"immich-ml": "immich", "immich-server": "immich"}


@dataclass
class Cluster:
    nodes: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    slices: list[Object] = field(default_factory=list)
    priorities: list[Object] = field(default_factory=list)
    quotas: list[Object] = field(default_factory=list)
    deployments: list[Object] = field(default_factory=list)
    autoscalers: list[Object] = field(default_factory=list)
    runtime_classes: list[Object] = field(default_factory=list)
    prometheuses: list[Object] = field(default_factory=list)
    cluster_queues: list[Object] = field(default_factory=list)
    local_queues: list[Object] = field(default_factory=list)
    mutating_webhooks: list[Object] = field(default_factory=list)
    services: list[Object] = field(default_factory=list)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: dict[str, list[str]] = field(default_factory=dict)
    version: str = VERSION
    stacks: dict[str, str] = field(default_factory=dict)  # Maps each namespace to the stack that labels it.
    patched: dict[str, str] = field(default_factory=dict)  # Maps each namespace to a label from a rollout.

    def api(self) -> FakeApi:
        groups = [{"name": n, "versions": [{"version": v} for v in found]} for n, found in self.groups.items()]
        namespaces = {pod["metadata"]["namespace"]: {} for pod in self.pods} | self.namespaces
        return FakeApi(
            {
                survey.VERSION: {"gitVersion": self.version},
                survey.GROUPS: {"groups": groups},
                **{
                    f"{survey.GROUPS}/{version}": {"resources": [{"name": name} for name in names]}
                    for version, names in self.kinds.items()
                },
            },
            {
                NODES: self.nodes,
                PODS: self.pods,
                SLICES: self.slices,
                survey.NAMESPACES: [self._namespace(name, labels) for name, labels in namespaces.items()],
                survey.PRIORITIES: self.priorities,
                survey.RUNTIME_CLASSES: self.runtime_classes,
                survey.QUOTAS: self.quotas,
                survey.DEPLOYMENTS: self.deployments,
                survey.AUTOSCALERS: self.autoscalers,
                survey.CLUSTER_QUEUES: self.cluster_queues,
                survey.LOCAL_QUEUES: self.local_queues,
                survey.MUTATING_WEBHOOKS: self.mutating_webhooks,
                survey.SERVICES: self.services,
                survey.PROMETHEUSES: self.prometheuses,
            },
        )

    def _namespace(self, name: str, labels: Mapping[str, str]) -> Object:
        annotations = {names.FIELD_MANAGER: self.stacks[name]} if name in self.stacks else {}
        fields = {f"f:{self.patched[name]}": {}} if name in self.patched else {}
        manager = {"manager": "gpu-tenancy/mine", "fieldsV1": {"f:metadata": {"f:labels": fields}}}
        others = {"manager": "kubectl-label", "fieldsV1": {"f:metadata": {"f:labels": {"f:theirs": {}}}}}
        metadata = {"name": name, "labels": dict(labels), "annotations": annotations}
        return {"metadata": {**metadata, "managedFields": [manager, others]}}


def node(name: str, offered: Mapping[str, str] | None = None, **labels: str) -> Object:
    named = {f"nvidia.com/{key.replace('_', '.', 1)}".replace("_", "-"): value for key, value in labels.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": name, **named}},
        "spec": {},
        "status": {"allocatable": {"cpu": "8", **(offered or {})}, "capacity": {"cpu": "8", **(offered or {})}},
    }


def labelled(name: str, product: str, mib: int, count: int = 1, replicas: int = 1, **labels: str) -> Object:
    strategy = "time-slicing" if replicas > 1 else "none"
    return node(
        name,
        {GPU: str(count * replicas)},
        gpu_present="true",
        gpu_product=product,
        gpu_memory=str(mib),
        gpu_count=str(count),
        gpu_replicas=str(replicas),
        **{"gpu_sharing_strategy": strategy, **labels},
    )


def pod(
    name: str,
    namespace: str,
    *,
    on: str | None = "k8s-node1",
    owner: tuple[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    owners = (
        [{"apiVersion": "apps/v1", "kind": owner[0], "name": owner[1], "uid": "u", "controller": True}] if owner else []
    )
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "creationTimestamp": "2026-11-22T11:50:00Z",
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
            "ownerReferences": owners,
        },
        "spec": {
            "containers": [{"name": "main", "image": "app:1", "resources": {"limits": dict(limits or {})}}],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": "Running" if on else "Pending"},
    }


def of_deployment(name: str, namespace: str, *, replicas: int = 1, **given: Any) -> list[Object]:
    made = {"owner": ("ReplicaSet", f"{name}-6c9f8d7b54"), "labels": {"pod-template-hash": "6c9f8d7b54"}}
    return [pod(f"{name}-6c9f8d7b54-x{number:04d}", namespace, **made | given) for number in range(replicas)]


def device_plugin(namespace: str = "nvidia", on: str = "k8s-node1") -> Object:
    found = pod(
        "nvidia-device-plugin-daemonset-abcde",
        namespace,
        on=on,
        owner=("DaemonSet", "nvidia-device-plugin-daemonset"),
        runtimeClassName="nvidia",
        priorityClassName="system-node-critical",
        volumes=[{"name": "device-plugin", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
    )
    found["spec"]["containers"][0]["image"] = "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"
    return found


def residents(limits: Mapping[str, str] | None = None) -> list[Object]:
    shared = {"limits": {GPU: "1", **(limits or {})}, "priorityClassName": "gpu-workload"}
    return [each for name in STEADY for each in of_deployment(name, NAMESPACE_OF.get(name, name), **shared)]


def record_0000(*more: Object) -> Cluster:
    emulator = of_deployment(
        "android-emulator",
        "android-emulator",
        limits={GPU: "1"},
        priorityClassName="gpu-workload",
        volumes=[{"name": "kvm", "hostPath": {"path": "/dev/kvm"}}],
    )
    return Cluster(
        nodes=[labelled("k8s-node1", "Tesla-T4-SHARED", 15360, replicas=100), node("k8s-node0")],
        pods=[*residents(), *emulator, device_plugin(), pod("web-0", "web", on="k8s-node0"), *more],
        priorities=[{"metadata": {"name": "gpu-workload"}, "value": 1200000, "description": "GPU pods"}],
    )


def device_slice(name: str, *sizes: int, driver: str = "gpu.nvidia.com") -> Object:
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {"uuid": {"string": f"GPU-{name}-{index}"}, "type": {"string": "gpu"}},
            "capacity": {"memory": {"value": f"{mib}Mi"}},
        }
        for index, mib in enumerate(sizes)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": f"{name}-{driver}"},
        "spec": {"driver": driver, "nodeName": name, "pool": pool, "devices": devices},
    }


def scaled(names: Iterable[str]) -> list[Object]:
    container = {"name": "main", "resources": {"limits": {GPU: "1"}}}
    return [
        {
            "metadata": {"name": name, "namespace": name},
            "spec": {"replicas": 0, "template": {"spec": {"containers": [container]}}},
        }
        for name in names
    ]
