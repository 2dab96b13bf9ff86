"""Finds the pods that reach a GPU, and the workload of each."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpumem.pods import WholePod, Workload
from tenancy import reach
from tenancy.names import EXEMPT_BY_NAME, POD_TEMPLATE_HASH, Names
from tenancy.quantity import QuantityError
from tenancy.workload import ShapeError, containers_of, map_at, maps_at, text_at

# Matches the kubelet's directories in which drivers and device plugins register. A pod that mounts one of the kubelet's
# registration directories already controls its node.
_KUBELET = re.compile(r"/+var/+lib/+kubelet/+(device-plugins|plugins|plugins_registry|pod-resources)(/.*)?")
_INFRASTRUCTURE = re.compile(r"nvidia|dcgm", re.IGNORECASE)
# Programs that make pods one by one mark them by the first label. The second label has the same value in all of them.
# Sources: kubespawner (_build_common_labels), actions-runner-controller (LabelKeyGitHubScaleSetName).
_SPAWNED = {
    "hub.jupyter.org/username": "component",
    "actions.github.com/scale-set-name": "actions.github.com/scale-set-name",
}
_RUN_OF_A_CRON_JOB = re.compile(r"-[0-9]{8,}$")


@dataclass(frozen=True, kw_only=True)
class GpuWorkload:
    """A workload with pods that reach a GPU. `routes` describes each route by which the first pod reaches a GPU."""

    workload: Workload
    pods: tuple[WholePod, ...]
    routes: tuple[str, ...]

    @property
    def pod(self) -> WholePod:
        """Returns the first pod of the workload, as all its pods are alike."""
        return self.pods[0]


def workload_of(pod: WholePod) -> Workload:
    """Returns the workload of the pod, such as the Deployment of a ReplicaSet, the CronJob of a Job, or the
    pod itself. All notebooks of a hub are one workload, and all runners of a scale set.
    """
    for mark, shared in _SPAWNED.items():
        if mark in pod.labels:
            return Workload(pod.namespace, "Pod", pod.labels.get(shared, pod.name))
    owner = pod.controller
    if owner is None or owner.kind == "Node":
        return Workload(pod.namespace, "Pod", pod.name)
    suffix = f"-{pod.labels.get(POD_TEMPLATE_HASH, '')}"
    if owner.kind == "ReplicaSet" and len(suffix) > 1 and owner.name.endswith(suffix):
        return Workload(pod.namespace, "Deployment", owner.name.removesuffix(suffix))
    if owner.kind == "Job" and (run := _RUN_OF_A_CRON_JOB.search(owner.name)):
        return Workload(pod.namespace, "CronJob", owner.name[: run.start()])
    return Workload(pod.namespace, owner.kind, owner.name)


def gpu_users(pods: Iterable[WholePod], names: Names, gaps: list[str]) -> tuple[GpuWorkload, ...]:
    """Returns the workloads with pods that reach a GPU, sorted by name.

    If a pod's data is invalid, adds a sentence about the pod to `gaps`.
    """
    found: dict[Workload, list[WholePod]] = {}
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
    return tuple(GpuWorkload(workload=each, pods=tuple(found[each]), routes=routes[each]) for each in sorted(found))


def infrastructure_namespaces(pods: Iterable[WholePod]) -> dict[str, str]:
    """Returns the namespaces with NVIDIA's device plugin, driver or exporter.

    For each namespace, returns a sentence about the pod of the program. Each of NVIDIA's programs mounts a directory in
    which the kubelet registers drivers. An account that may create pods with a mount of the kubelet's directory already
    controls the node. Therefore a tenant cannot gain an exemption by a name or a label.
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


def _kubelets_folders(pod: WholePod) -> Iterator[str]:
    for volume in maps_at(pod.spec, "volumes"):
        path = text_at(map_at(volume, "hostPath"), "path")
        if _KUBELET.fullmatch(path):
            yield path


def _described(pod: WholePod) -> Iterator[str]:
    yield from (text_at(container, "image") for container in containers_of(pod.spec))
    yield text_at(pod.spec, "runtimeClassName")
