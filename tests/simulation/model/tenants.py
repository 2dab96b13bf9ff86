"""Simulates tenants: their workloads, and the controllers that replace their pods. Units: MiB."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tenancy.names import (
    GPU,
    GPU_POD,
    GPU_POD_VALUE,
    KUEUE_POD_SET_LABEL,
    KUEUE_WORKLOAD_ANNOTATION,
    POD_TEMPLATE_HASH,
    SCHEDULER_NAME,
    Names,
)
from tests.simulation.model.api import Object, Server
from tests.simulation.model.world import World

HASH = "5d4f8b7c9"
RESIDENT, ON_DEMAND, UNBUDGETED, QUEUED = "resident", "on demand", "unbudgeted", "queued"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments/{}"


@dataclass(frozen=True, kw_only=True)
class PodSet:
    """A part of a Kueue Workload: pods with equal requests.

    `controller` is the owner that controls these pods, or None. `labels` are further labels of the pods.
    """

    name: str
    workload: str
    controller: Mapping[str, str] | None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Workload:
    """A Deployment. Each process of the Deployment uses `steady_mib` plus `over_mib`.

    A new pod begins without `over_mib`, unless `lies` is True. `devices` is the number of devices that a pod requests.
    `drains` is the time in seconds that a process needs to end, within the grace period `grace`. `lives` is the time in
    seconds after which each pod ends, like the pod of a Job. `crashes` is the time in seconds between two crashes of a
    pod.
    """

    name: str
    namespace: str
    kind: str
    steady_mib: int
    declared_mib: int = 0
    replicas: int = 1
    devices: int = 0
    over_mib: int = 0
    lies: bool = False
    grace: int = 30
    drains: float = 3.0
    lives: float | None = None
    crashes: float | None = None
    pulls: float = 2.0
    priority: int = 1_200_000
    selector: Mapping[str, str] = field(default_factory=dict)
    pod_set: PodSet | None = None  # set for a queued workload
    made: int = field(default=0, repr=False)
    dress: Callable[[Object], Object] = field(default=lambda pod: pod, repr=False)  # may change each new pod

    @property
    def owner(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def each_mib(self) -> int:
        """Returns the MiB that a pod declares on each of its devices."""
        return self.declared_mib // max(self.devices, 1)


# The steady use in MiB of the residents in docs/records/0000: 2.1, 4.35, 1.9, 1.2 and 1.5 GiB.
STEADY = {"immich-ml": 2150, "llama-swap": 4454, "frigate": 1946, "immich-server": 1229, "portal-stt": 1536}


@dataclass
class Workloads:
    """Stores all workloads, and simulates the controllers of Deployments and ReplicaSets. `quotas` has the quota of
    each namespace in MiB.
    """

    world: World
    server: Server
    names: Names
    quotas: Mapping[str, int]
    workloads: dict[str, Workload] = field(default_factory=dict)
    _waiting: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.server.hears.append(self._hear)

    def add(self, workload: Workload) -> None:
        self.workloads[workload.name] = workload
        if workload.kind == ON_DEMAND:
            self._declare(workload)
        else:
            self._later(workload, 0.0)

    def of(self, pod: Object) -> Workload | None:
        return self.workloads.get((pod["metadata"].get("labels") or {}).get("app", ""))

    def pods(self, workload: Workload) -> list[Object]:
        return [pod for pod in self.server.pods.values() if self.of(pod) is workload]

    def restart(self, workload: Workload) -> None:
        """Deletes the workload's pods, like a rollout."""
        for pod in self.pods(workload):
            self.server.delete_pod(pod)

    def scaled(self, workload: Workload) -> None:
        """Plans the creation or deletion of pods after the number of replicas has changed."""
        self._later(workload, 0.2)

    def wanted(self, workload: Workload) -> int:
        if workload.kind != ON_DEMAND:
            return workload.replicas
        return int(self.server.objects[DEPLOYMENTS.format(*workload.owner)]["spec"]["replicas"])

    def _hear(self, kind: str, found: Object) -> None:
        if found.get("kind") == "Deployment":
            self._later(self.workloads[found["metadata"]["name"]], 0.2)
            return
        workload = self.of(found) if found.get("kind") == "Pod" else None
        if workload and (kind == "DELETED" or "deletionTimestamp" in found["metadata"] or _ended(found)):
            for each in self.workloads.values():  # the quota may have refused pods of other workloads, too
                if each.namespace == workload.namespace:
                    self._later(each, 1.0)

    def _later(self, workload: Workload, seconds: float) -> None:
        if workload.name not in self._waiting:
            self._waiting.add(workload.name)
            self.world.after(seconds, lambda: self._control(workload))

    def _control(self, workload: Workload) -> None:
        self._waiting.discard(workload.name)
        pods = self.pods(workload)
        for pod in [pod for pod in pods if _ended(pod)]:
            self.server.remove_pod((workload.namespace, pod["metadata"]["name"]))
        active = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and not _ended(pod)]
        wanted = self.wanted(workload)
        for pod in active[wanted:]:
            self.server.delete_pod(pod)
        for _ in range(wanted - len(active)):
            if not self._may_create(workload):
                self.world.see("quota: pod refused")
                return
            self._create(workload)

    def _may_create(self, workload: Workload) -> bool:
        """Returns True if the ResourceQuota allows another pod. A terminating pod counts until it is deleted."""
        limit = self.quotas.get(workload.namespace)
        if not workload.declared_mib or limit is None:
            return True
        key = self.names.gpumem
        held = (pod for (space, _), pod in self.server.pods.items() if space == workload.namespace and not _ended(pod))
        return sum(gpumem_of(pod, key) for pod in held) + workload.declared_mib <= limit

    def _create(self, workload: Workload) -> None:
        workload.made += 1
        name = f"{workload.name}-{HASH}-{workload.made:05d}"
        limits = {self.names.gpumem: str(workload.declared_mib)} if workload.declared_mib else {GPU: "1"}
        if workload.devices:
            limits[self.names.gpu_count] = str(workload.devices)
        spec: dict[str, Any] = {
            "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}],
            "priority": workload.priority,
            "terminationGracePeriodSeconds": workload.grace,
        }
        if workload.selector:
            spec["nodeSelector"] = dict(workload.selector)
        if workload.declared_mib:
            spec["schedulerName"] = SCHEDULER_NAME
        owner: Mapping[str, str] | None = {
            "kind": "ReplicaSet",
            "name": f"{workload.name}-{HASH}",
            "uid": f"rs-{workload.name}",
        }
        # Pods without the label of GPU pods are older than admission.
        watched = {GPU_POD: GPU_POD_VALUE} if workload.made % 3 else {}
        labels = {"app": workload.name, POD_TEMPLATE_HASH: HASH, **watched}
        if workload.kind == RESIDENT and workload.made % 2:  # Pods without the label are older than the label.
            labels[self.names.seat_label] = workload.name
        annotations = {}
        if (pod_set := workload.pod_set) is not None:
            owner = pod_set.controller
            labels = {"app": workload.name, KUEUE_POD_SET_LABEL: pod_set.name, **pod_set.labels, **watched}
            annotations = {KUEUE_WORKLOAD_ANNOTATION: pod_set.workload}
        self.server.put_pod(
            workload.dress(
                {
                    "kind": "Pod",
                    "metadata": {
                        "name": name,
                        "namespace": workload.namespace,
                        "uid": f"uid-{name}",
                        "creationTimestamp": self.server.time().strftime("%Y-%m-%dT%H:%M:%SZ"),
                        "labels": labels,
                        "annotations": annotations,
                        "ownerReferences": [{"apiVersion": "apps/v1", **owner, "controller": True}] if owner else [],
                    },
                    "spec": spec,
                    "status": {"phase": "Pending"},
                }
            )
        )

    def _declare(self, workload: Workload) -> None:
        template = {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]}}
        self.server.put(
            DEPLOYMENTS.format(*workload.owner),
            {
                "kind": "Deployment",
                "metadata": {
                    "name": workload.name,
                    "namespace": workload.namespace,
                    "uid": f"uid-deployment-{workload.name}",
                    "generation": 1,
                    "managedFields": [],
                },
                "spec": {
                    "replicas": 0,
                    "selector": {"matchLabels": {"app": workload.name}},
                    "template": template,
                },
            },
        )


def _ended(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def gpumem_of(pod: Object, key: str) -> int:
    """Returns the pod's request. Each pod in the simulation has one container."""
    return int(pod["spec"]["containers"][0]["resources"]["limits"].get(key, 0))
