"""Finds a Kueue Workload, checks that it owns a pod, and deactivates it.

A tenant may write the annotation that names the Workload of a pod. To check the annotation, the watchdog follows the
pod's controllers, such as Job and JobSet, up to an owner of the Workload.
"""

import http.client
from collections.abc import Sequence
from dataclasses import dataclass

from agents.kube.client import Api, ApiError, Object
from agents.kube.events import Reference
from agents.kube.fields import is_name, text_at
from agents.kube.paths import ApiPath, api_path
from agents.kube.pods import Controller, controller_of
from agents.watchdog.pods import GpuPod
from tenancy.frameworks import FRAMEWORKS, FrameworkName, framework_of, parts_of
from tenancy.names import KUEUE_API
from tenancy.workload import map_at, maps_at

# The largest number of objects between a pod and the owner of its Workload. For a TrainJob, these objects are a Job and
# a JobSet.
_DEEPEST = 2
_PARTS = {part.name for part in parts_of(FrameworkName)}


@dataclass(frozen=True)
class KueueWorkload:
    """A Workload object of Kueue."""

    path: ApiPath
    namespace: str
    item: Object

    @property
    def active(self) -> bool:
        return map_at(self.item, "spec").get("active") is not False

    @property
    def references(self) -> Sequence[Reference]:
        """Returns the Workload, and its owners that are not pods, such as a Job."""
        metadata = map_at(self.item, "metadata")
        own = {"apiVersion": KUEUE_API, "kind": "Workload", **{key: metadata.get(key) for key in ("name", "uid")}}
        owners = (each for each in self._owners if each.get("kind") != "Pod")
        return [each for each in (self._reference(found) for found in (own, *owners)) if each is not None]

    @property
    def _owners(self) -> Sequence[Object]:
        return maps_at(map_at(self.item, "metadata"), "ownerReferences")

    def _reference(self, found: Object) -> Reference | None:
        version, kind, name, uid = (text_at(found, field) for field in ("apiVersion", "kind", "name", "uid"))
        if not (version and kind and name and uid):
            return None
        return Reference(api_version=version, kind=kind, namespace=self.namespace, name=name, uid=uid)

    def owns(self, api: Api, pod: GpuPod) -> bool:
        """Returns True if the pod, or a controller above the pod, is an owner of the Workload. Raises ApiError."""
        owners = {each.get("uid") for each in self._owners}
        if pod.uid in owners:
            return True
        above = pod.owner
        for _ in range(_DEEPEST):
            if above is None or above.uid in owners:
                break
            above = _controller_above(api, pod.namespace, above)
        return above is not None and above.uid in owners

    def deactivate(self, api: Api) -> None:
        """Sets spec.active of the Workload to False. Raises ApiError with a conflict if the Workload has changed.

        Source: pkg/controller/core/workload_controller.go of Kueue; `kueuectl stop workload` also sets spec.active.
        """
        version = {"resourceVersion": self.item["metadata"]["resourceVersion"]}
        api.merge_patch(self.path, {"metadata": version, "spec": {"active": False}})


def find_workload(api: Api, namespace: str, name: str) -> KueueWorkload | None:
    """Returns the Workload, or None if it does not exist. Raises ApiError."""
    path = api_path(KUEUE_API, "namespaces", namespace, "workloads", name)
    found = api.find(path)
    return None if found is None else KueueWorkload(path, namespace, found)


def _controller_above(api: Api, namespace: str, controller: Controller) -> Controller | None:
    """Returns the controller of a Job, JobSet or RayCluster. Returns None for any other kind, and if the object is
    missing or forbidden. Raises ApiError for all other errors.
    """
    group, _, version = controller.api_version.partition("/")
    kind = framework_of(controller.kind, group)
    if kind not in _PARTS or not is_name(version) or not is_name(controller.name):
        return None
    path = api_path(controller.api_version, "namespaces", namespace, FRAMEWORKS[kind].resource, controller.name)
    try:
        metadata = map_at(api.find(path) or {}, "metadata")
        return controller_of(metadata) if metadata.get("uid") == controller.uid else None
    except ApiError as error:
        if error.status != http.client.FORBIDDEN:
            raise
        return None
