"""Reads and scales the Deployments of on-demand workloads, and finds their autoscalers."""

import http.client
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agents.kube.client import Api, ApiError, Object
from agents.kube.events import Reference
from agents.kube.paths import ApiPath, api_path, below, with_query
from agents.kube.pods import Pod, pods_of
from tenancy.names import GATE, GPUMEM_SUFFIX
from tenancy.workload import containers_of, map_at, maps_at, texts_at

_KIND = "Deployment"


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A Deployment. `scaled_by` is the field manager that owns spec.replicas, or None after a scale to 0.

    `seats` are the gpumem resources that the Deployment's pods request, with any domain. `pods` is the label selector
    of the Deployment.
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
    """Returns the Deployment, or None if it does not exist. Raises ApiError."""
    found = api.find(_path(namespace, name))
    return None if found is None else _deployment(found)


def read_pods(api: Api, deployment: Deployment) -> Mapping[str, str | None]:
    """Returns the node of each running or pending pod of the Deployment, by the UID of the pod. The node is None if the
    pod is unbound. Raises ApiError.
    """
    listed = map(Pod, api.items(pods_of(deployment.namespace), labelSelector=deployment.pods))
    return {pod.uid: pod.node for pod in listed if not (pod.terminating or pod.ended)}


def read_scalers(api: Api, namespace: str) -> Mapping[str, str]:
    """Maps the name of each Deployment in the namespace to its autoscaler. Raises ApiError."""
    found = {}
    for kind, group_version in (("HorizontalPodAutoscaler", "autoscaling/v2"), ("ScaledObject", "keda.sh/v1alpha1")):
        for item in _items(api, api_path(group_version, "namespaces", namespace, f"{kind.lower()}s")):
            target = item["spec"]["scaleTargetRef"]
            # The default kind of KEDA is Deployment: https://keda.sh/docs/latest/reference/scaledobject-spec/
            if target.get("kind", _KIND) == _KIND:
                found[target["name"]] = f"{kind} {item['metadata']['name']}"
    return found


def scale(api: Api, deployment: Deployment, replicas: int) -> None:
    """Scales the Deployment. Raises ApiError. The ApiError is `outdated` if the Deployment has changed since
    `deployment` was read.
    """
    # A merge patch of the subresource scale needs the Deployment's resourceVersion (ScaleREST in
    # pkg/registry/apps/deployment/storage/storage.go).
    body = {"metadata": {"resourceVersion": deployment.resource_version}, "spec": {"replicas": replicas}}
    path = below(_path(deployment.namespace, deployment.name), "scale")
    api.merge_patch(with_query(path, fieldManager=GATE), body)


def _items(api: Api, path: ApiPath) -> Iterator[Object]:
    """Yields the objects of a kind. A kind that is unknown to the API server has no objects."""
    try:
        yield from api.items(path)
    except ApiError as error:
        if error.status != http.client.NOT_FOUND:
            raise


def _path(namespace: str, name: str) -> ApiPath:
    return api_path("apps/v1", "namespaces", namespace, "deployments", name)


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
        pods=",".join(_requirements(map_at(spec, "selector"))),
    )


def _scaled_by(metadata: Object) -> str | None:
    """Returns the field manager that owns spec.replicas.

    Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management.
    """
    owners = (
        entry.get("manager") or "somebody"
        for entry in maps_at(metadata, "managedFields")
        if "f:replicas" in map_at(entry, "fieldsV1", "f:spec")
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
    labels = map_at(selector, "matchLabels")
    for key in labels:
        yield f"{key}={labels[key]}"
    for requirement in maps_at(selector, "matchExpressions"):
        key, values = requirement["key"], ",".join(texts_at(requirement, "values"))
        match requirement["operator"]:
            case "In":
                yield f"{key} in ({values})"
            case "NotIn":
                yield f"{key} notin ({values})"
            case "Exists":
                yield key
            case "DoesNotExist":
                yield f"!{key}"
