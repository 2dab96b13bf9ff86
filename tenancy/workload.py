"""Counts the pods of a workload, and the requests of each pod, in the same way as kube-scheduler.

A manifest is JSON-like data with the fields of the Kubernetes API. A field with the value null counts as absent. A
whole number in a manifest may be a float, because protobuf converts numbers to floats. Every function raises ShapeError
if a value has another type than the expected map or list.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from tenancy.quantity import parse, whole
from tenancy.units import MIB

Manifest = Mapping[str, Any]

# The path of the pod template in the manifest of each built-in kind that runs pods.
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
_NOTHING = Fraction(0)
_DEFAULT_SURGE = "25%"  # the default for a Deployment (pkg/apis/apps/v1/defaults.go)


class ShapeError(ValueError):
    """The manifest does not have the form that the API server expects."""


class UnboundedError(ValueError):
    """The manifest does not limit the number of pods that run at the same time."""


def pod_template(manifest: Manifest) -> Manifest | None:
    """Returns the metadata and the spec of a built-in workload's pods, or None for a kind without pods."""
    path = TEMPLATES.get(manifest["kind"])
    return None if path is None else map_at(manifest, *path)


def max_pods(manifest: Manifest, *, nodes: int) -> int:
    """Returns the maximum number of pods of a workload that run at the same time outside of a rollout.

    A DaemonSet has one pod on each of `nodes`. Raises QuantityError. Raises UnboundedError for a CronJob if the number
    of its overlapping Jobs has no limit.
    """
    kind = manifest["kind"]
    spec = map_at(manifest, "spec")
    if kind == "Pod":
        return 1
    if kind == "DaemonSet":
        return nodes
    if kind == "Job":
        return _job_pods(spec)
    if kind == "CronJob":
        if value_or(spec, "concurrencyPolicy", "Allow") == "Allow":
            raise UnboundedError("concurrencyPolicy Allow lets runs pile up; write Forbid or Replace")
        return _job_pods(map_at(spec, "jobTemplate", "spec"))
    return _count(spec, "replicas", 1)


def max_surge_pods(manifest: Manifest, *, nodes: int) -> int:
    """Returns how many pods more than `max_pods` run during a rollout.

    A workload that is scaled to 0 counts like a workload with one replica. A percentage is rounded up, as in
    ResolveFenceposts of pkg/controller/deployment/util/deployment_util.go. Raises QuantityError.
    """
    spec = map_at(manifest, "spec")
    if (
        manifest["kind"] == "Deployment"
        and value_or(map_at(spec, "strategy"), "type", "RollingUpdate") == "RollingUpdate"
    ):
        surge = value_or(map_at(spec, "strategy", "rollingUpdate"), "maxSurge", _DEFAULT_SURGE)
        return _share(surge, max(_count(spec, "replicas", 1), 1))
    if manifest["kind"] == "DaemonSet":
        return _share(value_or(map_at(spec, "updateStrategy", "rollingUpdate"), "maxSurge", 0), nodes)
    return 0


def pod_request(pod_spec: Manifest, resource: str, *, per_unit: int = 1) -> int:
    """Returns the request of one pod as kube-scheduler counts it.

    The result counts parts of the resource's unit, and is rounded up. One part is 1/`per_unit` of the resource's unit.
    Source: PodRequests in k8s.io/component-helpers/resource/helpers.go. Raises QuantityError.
    """
    level = _pod_level(pod_spec, resource)
    request = containers_request(pod_spec, resource) if level is None else level
    more = overhead(pod_spec, resource)
    # Most pods ask for none of most resources, and a sum of fractions takes longer than reading them.
    return math.ceil((request + more) * per_unit) if request or more else 0


def containers_request(pod_spec: Manifest, resource: str) -> Fraction:
    """Returns the request that kube-scheduler computes from the containers of the pod. Raises QuantityError.

    Source: AggregateContainerRequests in k8s.io/component-helpers/resource/helpers.go. The first sum is the request of
    all containers and sidecars (init containers that restart). The second sum is the request of an init container and
    of all sidecars before it. The result is the larger of the two sums.
    """
    return largest_at_once(pod_spec, lambda container: container_request(container, resource))


def largest_at_once(pod_spec: Manifest, amount: Callable[[Manifest], Fraction]) -> Fraction:
    """Returns the largest amount that the containers of a pod need at the same time.

    `amount` returns the amount of one container.
    """
    running = sum(filter(None, map(amount, containers_of(pod_spec, "containers"))), _NOTHING)
    sidecars = peak = _NOTHING
    first = maps_at(pod_spec, "initContainers")
    for container in first:
        peak = max(peak, sidecars + amount(container))
        if is_sidecar(container):
            sidecars += amount(container)
    return max(running + sidecars, peak) if first or running else _NOTHING


def container_request(container: Manifest, resource: str) -> Fraction:
    """Returns the request of a container, or its limit if the container has no request. Raises QuantityError.

    Source: SetDefaults_Pod in pkg/apis/core/v1/defaults.go.
    """
    resources = map_at(container, "resources")
    return parse(value_or(map_at(resources, "requests"), resource, value_or(map_at(resources, "limits"), resource, 0)))


def memory_limit_mib(pod_spec: Manifest) -> int | None:
    """Returns the host memory in MiB that the containers of a pod may use together, or None if a container has no
    limit.

    Source: PodLimits in k8s.io/component-helpers/resource/helpers.go. Raises QuantityError.
    """
    level = _memory_limit(pod_spec)
    if level is not None:
        return math.ceil(parse(level) / MIB)
    if any(_memory_limit(container) is None for container in containers_of(pod_spec)):
        return None
    return math.ceil(largest_at_once(pod_spec, lambda container: parse(_memory_limit(container))) / MIB)


def pod_level_request(pod_spec: Manifest, resource: str) -> Fraction | None:
    """Returns the pod-level request after the API server has set defaults, or None without a pod-level request.

    The source is defaultPodRequests in pkg/apis/core/v1/defaults.go. Raises QuantityError.
    """
    resources = map_at(pod_spec, "resources")
    stated = value_or(map_at(resources, "requests"), resource, None)
    if stated is not None or not map_at(resources, "limits"):
        return None if stated is None else parse(stated)
    if any(_states(c, resource) for c in containers_of(pod_spec)):
        return containers_request(pod_spec, resource)
    limit = value_or(map_at(resources, "limits"), resource, None)
    return None if limit is None else parse(limit)


def overhead(pod_spec: Manifest, resource: str) -> Fraction:
    """Returns the overhead of the pod's RuntimeClass. Raises QuantityError."""
    return parse(value_or(map_at(pod_spec, "overhead"), resource, 0))


def is_sidecar(init_container: Manifest) -> bool:
    """Returns True if an init container is a sidecar."""
    return init_container.get("restartPolicy") == "Always"


def containers_of(pod_spec: Manifest, *lists: str) -> Iterator[Manifest]:
    """Yields the containers of the fields `lists` (containers, initContainers), in their order.

    Without `lists`, yields the containers of both fields, containers and initContainers.
    """
    for name in lists or ("containers", "initContainers"):
        yield from maps_at(pod_spec, name)


def may_run_on(pod_spec: Manifest, labels: Mapping[str, str]) -> bool:
    """Returns True if the pod's nodeSelector and nodeAffinity allow a node with these labels.

    The node can have more labels than `labels`. Raises ShapeError.
    """
    selected = map_at(pod_spec, "nodeSelector")
    if any(selected.get(label, value) != value for label, value in labels.items()):
        return False
    required = map_at(pod_spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = maps_at(required, "nodeSelectorTerms")
    return not terms or any(
        all(not _rules_out(e, *label) for e, label in product(maps_at(term, "matchExpressions"), labels.items()))
        for term in terms
    )


def tolerates(pod_spec: Manifest, taint: Mapping[str, object]) -> bool:
    """Returns True if the pod tolerates the taint.

    Source: The source is ToleratesTaint in k8s.io/api core/v1 toleration.go.
    """
    return any(_matches(each, taint) for each in maps_at(pod_spec, "tolerations"))


def _matches(toleration: Manifest, taint: Mapping[str, object]) -> bool:
    key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if key not in (None, "", taint.get("key")):
        return False
    if operator == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def _rules_out(expression: Manifest, label: str, value: str) -> bool:
    if text_at(expression, "key") != label:
        return False
    match text_at(expression, "operator"):
        case "In":
            return value not in texts_at(expression, "values")
        case "NotIn":
            return value in texts_at(expression, "values")
        case other:
            return other == "DoesNotExist"


def value_or(mapping: Manifest, field: str, default: Any) -> Any:
    """Returns the value of the field, or the default if the field is absent or null."""
    value = mapping.get(field)
    return default if value is None else value


def text_at(mapping: Manifest, field: str) -> str:
    """Returns a string, or "" if the field is absent. Raises ShapeError for a value of any other type."""
    value = value_or(mapping, field, "")
    if not isinstance(value, str):
        raise ShapeError(f"{field} must be a string (got {value!r})")
    return value


def texts_at(mapping: Manifest, field: str) -> list[str]:
    """Returns a list of strings, or an empty list if the field is absent.

    Raises ShapeError for a value of any other type.
    """
    values = value_or(mapping, field, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ShapeError(f"{field} must be a list of strings (got {values!r})")
    return values


def map_at(mapping: Manifest, *path: str) -> Manifest:
    """Returns the map at the path `path`, or an empty map if it is absent."""
    for depth, field in enumerate(path, 1):
        value = mapping.get(field)
        if value is not None and not isinstance(value, Mapping):
            raise ShapeError(f"{'.'.join(path[:depth])} must be a map (got {value!r})")
        mapping = value or {}
    return mapping


def maps_at(mapping: Manifest, *path: str) -> Sequence[Manifest]:
    """Returns the list of maps at the path `path`, or an empty list if it is absent."""
    *parents, field = path
    value = value_or(map_at(mapping, *parents), field, ())
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise ShapeError(f"{'.'.join(path)} must be a list of maps (got {value!r})")
    return value


def condition(item: Manifest, kind: str) -> Manifest:
    """Returns the condition of an object's status, or an empty map if the object has none of this type."""
    return next((each for each in maps_at(item, "status", "conditions") if each.get("type") == kind), {})


def _job_pods(spec: Manifest) -> int:
    """Returns the maximum number of pods that a Job runs at the same time.

    A Job without completions is a work queue, and only `parallelism` limits its pods.
    """
    parallelism = _count(spec, "parallelism", 1)
    return min(parallelism, _count(spec, "completions", parallelism))


def _pod_level(pod_spec: Manifest, resource: str) -> Fraction | None:
    """Returns the pod-level request for cpu, memory or huge pages.

    A pod-level request replaces the requests of the pod's containers.
    """
    if resource not in ("cpu", "memory") and not resource.startswith("hugepages-"):
        return None
    return pod_level_request(pod_spec, resource)


def _memory_limit(container: Manifest) -> object:
    return map_at(container, "resources", "limits").get("memory")


def _states(container: Manifest, resource: str) -> bool:
    resources = map_at(container, "resources")
    return any(resource in map_at(resources, part) for part in ("requests", "limits"))


def _share(amount: object, of: int) -> int:
    """Returns the number that an IntOrString stands for. A percentage of `of` is rounded up."""
    if isinstance(amount, str) and amount.endswith("%"):
        return math.ceil(parse(amount.removesuffix("%")) * of / 100)
    return whole(amount)


def _count(spec: Manifest, field: str, default: int) -> int:
    return whole(value_or(spec, field, default))
