"""Finds the pods that reach a GPU, and the workload of each."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agents.kube.pods import Pod
from tenancy import reach
from tenancy.names import EXEMPT_BY_NAME, POD_TEMPLATE_HASH, Names
from tenancy.quantity import QuantityError
from tenancy.workload import ShapeError, at, containers_of, maps_at, text

# Folders of the kubelet in which drivers and device plugins register. A pod that mounts one owns its node already.
_KUBELET = re.compile(r"/+var/+lib/+kubelet/+(device-plugins|plugins|plugins_registry|pod-resources)(/.*)?")
_INFRASTRUCTURE = re.compile(r"nvidia|dcgm", re.IGNORECASE)
_RUN_OF_A_CRON_JOB = re.compile(r"-[0-9]{8,}$")


@dataclass(frozen=True, order=True)
class Workload:
    """The owner of pods."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class GpuUser:
    """A workload with pods that reach a GPU. `routes` describes each route of its first pod."""

    workload: Workload
    pods: tuple[Pod, ...]
    routes: tuple[str, ...]

    @property
    def pod(self) -> Pod:
        """One of its pods, which are alike."""
        return self.pods[0]


def workload_of(pod: Pod) -> Workload:
    """The workload that makes the pod: a ReplicaSet's Deployment, a Job's CronJob, or the pod itself."""
    owner = pod.controller
    if owner is None or owner.kind == "Node":
        return Workload(pod.namespace, "Pod", pod.name)
    suffix = f"-{pod.labels.get(POD_TEMPLATE_HASH, '')}"
    if owner.kind == "ReplicaSet" and len(suffix) > 1 and owner.name.endswith(suffix):
        return Workload(pod.namespace, "Deployment", owner.name.removesuffix(suffix))
    if owner.kind == "Job" and (run := _RUN_OF_A_CRON_JOB.search(owner.name)):
        return Workload(pod.namespace, "CronJob", owner.name[: run.start()])
    return Workload(pod.namespace, owner.kind, owner.name)


def gpu_users(pods: Iterable[Pod], names: Names, gaps: list[str]) -> tuple[GpuUser, ...]:
    """The workloads with pods that reach a GPU, by name. A pod that cannot be read has a line in `gaps`."""
    found: dict[Workload, list[Pod]] = {}
    routes: dict[Workload, tuple[str, ...]] = {}
    for pod in pods:
        try:
            ways = tuple(reach.routes(pod.spec, names))
        except (QuantityError, ShapeError) as error:
            gaps.append(f"pod {pod} is not judged: {error}")
            continue
        if ways and not pod.static:
            workload = workload_of(pod)
            found.setdefault(workload, []).append(pod)
            routes.setdefault(workload, ways)
    return tuple(GpuUser(workload=each, pods=tuple(found[each]), routes=routes[each]) for each in sorted(found))


def infrastructure(pods: Iterable[Pod]) -> dict[str, str]:
    """The namespaces of NVIDIA's device plugin, driver or exporter, each with a sentence about the pod that shows it.

    The pod mounts a folder in which the kubelet registers drivers. An account that creates such pods owns the node
    already, so a tenant gets no exemption by a name or a label.
    """
    found: dict[str, str] = {}
    for pod in pods:
        owner = pod.controller
        if pod.namespace in found or pod.namespace == EXEMPT_BY_NAME or owner is None or owner.kind != "DaemonSet":
            continue
        path = next(_kubelets_folders(pod), None)
        if path is not None and any(map(_INFRASTRUCTURE.search, _described(pod))):
            found[pod.namespace] = f"DaemonSet {owner.name} mounts {path} of the node"
    return found


def _kubelets_folders(pod: Pod) -> Iterator[str]:
    for volume in maps_at(pod.spec, "volumes"):
        path = text(at(volume, "hostPath"), "path")
        if _KUBELET.fullmatch(path):
            yield path


def _described(pod: Pod) -> Iterator[str]:
    yield from (text(container, "image") for container in containers_of(pod.spec))
    yield text(pod.spec, "runtimeClassName")
