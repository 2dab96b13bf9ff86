"""Reads and scales the gates' Deployments, and finds the autoscalers of these Deployments."""

import http.client
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agents.kube.client import Api, ApiError, Object, join_path
from agents.kube.events import Reference
from agents.kube.pods import Pod
from tenancy.names import GATE, GPUMEM_SUFFIX
from tenancy.workload import containers_of, map_at, maps_at

_KIND = "Deployment"


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A Deployment. `scaled_by` is the field manager that owns spec.replicas, or None after a scale to 0.

    `seats` are the gpumem resources that its pods request, of any domain. `pods` is its label selector.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    generation: int = 1
    replicas: int = 0
    scaled_by: str | None = None
    seats: tuple[str, ...] = ()
    pods: str = ""

    @property
    def reference(self) -> Reference:
        return Reference(api_version="apps/v1", kind=_KIND, namespace=self.namespace, name=self.name, uid=self.uid)


def read(api: Api, namespace: str, name: str) -> Deployment | None:
    """Returns the Deployment, or None if the Deployment does not exist. Raises ApiError."""
    found = api.find(_path(namespace, name))
    return None if found is None else _deployment(found)


def read_pods(api: Api, deployment: Deployment) -> Mapping[str, str | None]:
    """Returns the node of each running or pending pod of the Deployment by UID, or None for an unbound pod. Raises
    ApiError.
    """
    path = f"/api/v1/namespaces/{deployment.namespace}/pods"
    found = map(Pod, api.items(path, labelSelector=deployment.pods))
    return {pod.uid: pod.node for pod in found if not (pod.terminating or pod.ended)}


def read_scalers(api: Api, namespace: str) -> Mapping[str, str]:
    """Returns the namespace's autoscalers by the name of their Deployment. Raises ApiError."""
    found = {}
    for kind, path in (
        ("HorizontalPodAutoscaler", f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"),
        ("ScaledObject", f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects"),
    ):
        for item in _items(api, path):
            target = map_at(item, "spec", "scaleTargetRef")
            # KEDA's default kind is Deployment: https://keda.sh/docs/latest/reference/scaledobject-spec/
            if target.get("kind", _KIND) == _KIND:
                found[str(target.get("name"))] = f"{kind} {item['metadata']['name']}"
    return found


def scale(api: Api, deployment: Deployment, replicas: int) -> None:
    """Scales the Deployment. Raises ApiError. The error is `outdated` if the Deployment has changed since `deployment`
    was read.
    """
    # For a merge patch of the subresource scale, the resourceVersion is the Deployment's (ScaleREST in
    # pkg/registry/apps/deployment/storage/storage.go).
    body = {"metadata": {"resourceVersion": deployment.resource_version}, "spec": {"replicas": replicas}}
    api.merge_patch(f"{_path(deployment.namespace, deployment.name)}/scale?fieldManager={GATE}", body)


def _items(api: Api, path: str) -> Iterator[Object]:
    """Yields the objects of a kind, or nothing if the kind is unknown to the API server."""
    try:
        yield from api.items(path)
    except ApiError as error:
        if error.status != http.client.NOT_FOUND:
            raise


def _path(namespace: str, name: str) -> str:
    return join_path("/apis/apps/v1/namespaces", namespace, "deployments", name)


def _deployment(item: Object) -> Deployment:
    metadata, spec = item["metadata"], item["spec"]
    return Deployment(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=metadata["generation"],
        replicas=spec["replicas"],
        scaled_by=_scaled_by(metadata),
        seats=tuple(sorted(_seats(map_at(spec, "template", "spec")))),
        pods=",".join(_requirements(spec["selector"])),
    )


def _scaled_by(metadata: Object) -> str | None:
    """Returns the field manager that owns spec.replicas.

    Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management.
    """
    owners = (
        entry["manager"]
        for entry in metadata.get("managedFields") or ()
        if "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    )
    return next(owners, None)


def _seats(pod_spec: Object) -> set[str]:
    return {
        resource
        for container in containers_of(pod_spec)
        for part in ("requests", "limits")
        for resource in map_at(container, "resources", part)
        if resource.endswith(GPUMEM_SUFFIX)
    }


def _requirements(selector: Object) -> Iterator[str]:
    """Yields the requirements of a label selector in the syntax of a list request.

    Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#list-and-watch-filtering
    """
    for key, value in map_at(selector, "matchLabels").items():
        yield f"{key}={value}"
    for requirement in maps_at(selector, "matchExpressions"):
        key, values = requirement["key"], ",".join(requirement.get("values") or ())
        match requirement["operator"]:
            case "In":
                yield f"{key} in ({values})"
            case "NotIn":
                yield f"{key} notin ({values})"
            case "Exists":
                yield key
            case "DoesNotExist":
                yield f"!{key}"
