"""Counts the pods of a workload, and the requests of each pod, as the scheduler does.

Manifests are plain JSON-like data in the form of the API. A null counts as an absent field. Numbers may be floats,
because they travel through protobuf. Every function raises ShapeError if a map or a list is in a wrong place.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from tenancy.quantity import parse, whole

Manifest = Mapping[str, Any]

# The path of the pod template in each built-in kind that runs pods.
TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
_DEFAULT_SURGE = "25%"  # the default of a Deployment, pkg/apis/apps/v1/defaults.go


class ShapeError(ValueError):
    """A manifest does not have the shape that the API takes."""


class UnboundedError(ValueError):
    """No field of the manifest limits how many pods run at once."""


def pod_template(manifest: Manifest) -> Manifest | None:
    """Returns the metadata and spec of the pods that a built-in workload runs; None for a kind without pods."""
    path = TEMPLATES.get(manifest["kind"])
    return None if path is None else at(manifest, *path)


def pods_of(manifest: Manifest, *, nodes: int) -> int:
    """Returns the most pods that a workload runs at once outside a rollout. A DaemonSet runs one on each of `nodes`.

    Raises UnboundedError for a CronJob with runs that may pile up, and QuantityError.
    """
    kind = manifest["kind"]
    spec = at(manifest, "spec")
    if kind == "Pod":
        return 1
    if kind == "DaemonSet":
        return nodes
    if kind == "Job":
        return _job_pods(spec)
    if kind == "CronJob":
        if given(spec, "concurrencyPolicy", "Allow") == "Allow":
            raise UnboundedError("concurrencyPolicy Allow lets runs pile up; write Forbid or Replace")
        return _job_pods(at(spec, "jobTemplate", "spec"))
    return _count(spec, "replicas", 1)


def surge_of(manifest: Manifest, *, nodes: int) -> int:
    """Returns the pods that a rollout runs beyond `pods_of`. A workload that is scaled to 0 counts as one replica.

    Source: ResolveFenceposts in pkg/controller/deployment/util/deployment_util.go: a percentage is rounded up.
    Raises QuantityError.
    """
    spec = at(manifest, "spec")
    if manifest["kind"] == "Deployment" and given(at(spec, "strategy"), "type", "RollingUpdate") == "RollingUpdate":
        surge = given(at(spec, "strategy", "rollingUpdate"), "maxSurge", _DEFAULT_SURGE)
        return _share(surge, max(_count(spec, "replicas", 1), 1))
    if manifest["kind"] == "DaemonSet":
        return _share(given(at(spec, "updateStrategy", "rollingUpdate"), "maxSurge", 0), nodes)
    return 0


def pod_request(pod_spec: Manifest, resource: str, *, per_unit: int = 1) -> int:
    """Returns the request of one pod, rounded up to 1/`per_unit` of the unit, as the scheduler counts it.

    Source: PodRequests in k8s.io/component-helpers/resource/helpers.go. Raises QuantityError.
    """
    level = _pod_level(pod_spec, resource)
    request = containers_request(pod_spec, resource) if level is None else level
    return math.ceil((request + overhead(pod_spec, resource)) * per_unit)


def containers_request(pod_spec: Manifest, resource: str) -> Fraction:
    """Returns the sum of the containers' requests. Raises QuantityError.

    Source: AggregateContainerRequests in k8s.io/component-helpers/resource/helpers.go. Containers and sidecars (init
    containers that restart) add up. An init container adds up with the sidecars declared before it. The larger of both
    sums counts.
    """
    return at_once(pod_spec, lambda container: container_request(container, resource))


def at_once(pod_spec: Manifest, amount: Callable[[Manifest], Fraction]) -> Fraction:
    """Returns the most that the containers of a pod take together; `amount` returns the share of one container."""
    running = sum(map(amount, containers_of(pod_spec, "containers")), Fraction(0))
    sidecars = peak = Fraction(0)
    for container in containers_of(pod_spec, "initContainers"):
        peak = max(peak, sidecars + amount(container))
        if restarts(container):
            sidecars += amount(container)
    return max(running + sidecars, peak)


def container_request(container: Manifest, resource: str) -> Fraction:
    """Returns a container's request, or its limit if it has no request. Raises QuantityError.

    Source: SetDefaults_Pod in pkg/apis/core/v1/defaults.go.
    """
    resources = at(container, "resources")
    return parse(given(at(resources, "requests"), resource, given(at(resources, "limits"), resource, 0)))


def pod_level_request(pod_spec: Manifest, resource: str) -> Fraction | None:
    """Returns the request in the pod's own resources after the API server's defaults; None without a request.

    Source: defaultPodRequests in pkg/apis/core/v1/defaults.go. Raises QuantityError.
    """
    resources = at(pod_spec, "resources")
    stated = given(at(resources, "requests"), resource, None)
    if stated is not None or not at(resources, "limits"):
        return None if stated is None else parse(stated)
    if any(_states(c, resource) for c in containers_of(pod_spec)):
        return containers_request(pod_spec, resource)
    limit = given(at(resources, "limits"), resource, None)
    return None if limit is None else parse(limit)


def overhead(pod_spec: Manifest, resource: str) -> Fraction:
    """Returns the overhead of the pod's RuntimeClass. Raises QuantityError."""
    return parse(given(at(pod_spec, "overhead"), resource, 0))


def restarts(init_container: Manifest) -> bool:
    """Returns True if an init container is a sidecar."""
    return init_container.get("restartPolicy") == "Always"


def containers_of(pod_spec: Manifest, *lists: str) -> Iterator[Manifest]:
    """Yields the containers under `lists` (containers, initContainers), in their order.

    Without `lists`, yields both.
    """
    for name in lists or ("containers", "initContainers"):
        yield from maps_at(pod_spec, name)


def given(mapping: Manifest, field: str, default: Any) -> Any:
    """Returns the field, or the default if the field is absent."""
    value = mapping.get(field)
    return default if value is None else value


def text(mapping: Manifest, field: str) -> str:
    """Returns a string; empty if it is absent. Raises ShapeError for anything else."""
    value = given(mapping, field, "")
    if not isinstance(value, str):
        raise ShapeError(f"{field} must be a string (got {value!r})")
    return value


def texts(mapping: Manifest, field: str) -> list[str]:
    """Returns a list of strings; empty if it is absent. Raises ShapeError like `text`."""
    values = given(mapping, field, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ShapeError(f"{field} must be a list of strings (got {values!r})")
    return values


def at(mapping: Manifest, *path: str) -> Manifest:
    """Returns the map under `path`; empty if it is absent."""
    for depth, field in enumerate(path, 1):
        value = mapping.get(field)
        if value is not None and not isinstance(value, Mapping):
            raise ShapeError(f"{'.'.join(path[:depth])} must be a map (got {value!r})")
        mapping = value or {}
    return mapping


def maps_at(mapping: Manifest, *path: str) -> Sequence[Manifest]:
    """Returns the list of maps under `path`; empty if it is absent."""
    *parents, field = path
    value = given(at(mapping, *parents), field, ())
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise ShapeError(f"{'.'.join(path)} must be a list of maps (got {value!r})")
    return value


def _job_pods(spec: Manifest) -> int:
    """Returns the most pods of a Job. Without completions, a Job is a work queue, which only `parallelism` bounds."""
    parallelism = _count(spec, "parallelism", 1)
    return min(parallelism, _count(spec, "completions", parallelism))


def _pod_level(pod_spec: Manifest, resource: str) -> Fraction | None:
    """Returns the pod-level request (cpu, memory, huge pages), which replaces the containers' requests if it is set."""
    if resource not in ("cpu", "memory") and not resource.startswith("hugepages-"):
        return None
    return pod_level_request(pod_spec, resource)


def _states(container: Manifest, resource: str) -> bool:
    resources = at(container, "resources")
    return any(resource in at(resources, part) for part in ("requests", "limits"))


def _share(amount: object, of: int) -> int:
    """Returns the value of an IntOrString: a number, or a percentage of `of`, rounded up."""
    if isinstance(amount, str) and amount.endswith("%"):
        return math.ceil(parse(amount.removesuffix("%")) * of / 100)
    return whole(amount)


def _count(spec: Manifest, field: str, default: int) -> int:
    return whole(given(spec, field, default))
