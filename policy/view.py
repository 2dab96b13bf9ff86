"""Turns the SDK's view of the stack into plain objects. Unknown values become `Unknown`, which raises an error when
code uses the value."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pulumi_policy import PolicyResource
from pulumi_policy import proxy as sdk

from policy.objects import Object
from policy.unknown import Unknown, is_unknown
from tenancy import names
from tenancy.workload import ShapeError

_MAP = type(sdk.unknown_checking_proxy({}))
_LIST = type(sdk.unknown_checking_proxy([]))
_UNKNOWN = frozenset(value for name, value in vars(sdk).items() if name.startswith("UNKNOWN_"))
_PREFIX = "kubernetes:"
CONTEXT = "context"  # A setting of a provider and a key of the pack's configuration have this name.
_SETTINGS = ("kubeconfig", CONTEXT, "cluster")  # A provider chooses its cluster by these settings.

_Settings = Mapping[str, object]


def objects_of(resources: Iterable[PolicyResource]) -> tuple[Object, ...]:
    """Returns every resource of the Kubernetes provider as an object, and each item of a List as one object."""
    return tuple(
        object_
        for resource in resources
        if resource.resource_type.startswith(_PREFIX)
        for object_ in _objects(resource)
    )


def _objects(resource: PolicyResource) -> Iterator[Object]:
    """Yields the objects of a resource. A type token is `kubernetes:<group>/<version>:<Kind>`. The core API group
    is called `core`."""
    _, module, kind = resource.resource_type.split(":")
    api_version = module.removeprefix("core/")
    props = plain_data(resource.props)
    if kind.endswith("List") and type(props.get("items")) is list:
        for item in props["items"]:
            if type(item) is dict:
                yield _object(kind.removesuffix("List"), api_version, item, resource)
        return
    yield _object(kind, api_version, props, resource)


def _object(kind: str, api_version: str, props: dict[str, Any], resource: PolicyResource) -> Object:
    group = api_version.rpartition("/")[0]
    provider = resource.provider.urn if resource.provider is not None else ""
    return Object(kind, group, {**props, "apiVersion": api_version, "kind": kind}, resource.urn, provider)


def plain_data(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """Turns proxies into dicts and lists, and unknown values into `Unknown`. `path` is the pair of the parent's path
    and the key."""
    kind = type(value)
    if kind is _MAP or kind is dict:
        items = value["__target"] if kind is _MAP else value
        return {key: plain_data(item, (path, key)) for key, item in items.items()}
    if kind is _LIST or kind is list:
        items = value["__target"] if kind is _LIST else value
        return [plain_data(item, (path, index)) for index, item in enumerate(items)]
    if kind is str and value in _UNKNOWN:
        return Unknown(_dotted(path))
    return value


def _dotted(path: tuple[Any, ...]) -> str:
    keys = []
    while path:
        path, key = path
        keys.append(str(key))
    return ".".join(reversed(keys))


def split(
    resources: Sequence[PolicyResource], configured: Mapping[str, object]
) -> tuple[list[PolicyResource], list[PolicyResource]]:
    """Returns the resources of the ledger's cluster, and the resources of other clusters.

    The ledger's cluster is the cluster of the ledger's provider. If the program declares no ledger, the ledger's
    cluster is the cluster with the configured context. A resource belongs to another cluster only if its provider names
    a different cluster. Every ledger counts as a resource of the ledger's cluster, so that a program with two ledgers
    is refused.
    """
    ledgers = [resource for resource in resources if _is_ledger(resource)]
    context = configured.get(CONTEXT)
    ours = _settings(ledgers[0]) if ledgers else {} if context is None else {CONTEXT: context}
    parts: tuple[list[PolicyResource], list[PolicyResource]] = ([], [])
    for resource in resources:
        parts[_differ(ours, _settings(resource)) and resource not in ledgers].append(resource)
    return parts


def _is_ledger(resource: PolicyResource) -> bool:
    if not resource.resource_type.endswith(":ConfigMap"):
        return False
    try:
        return any(not is_unknown(found.name) and found.name == names.LEDGER for found in objects_of([resource]))
    except ShapeError:
        return False  # A rule reports a ConfigMap with a name that is not a string.


def _settings(resource: PolicyResource) -> _Settings:
    """Returns the settings of the resource's provider. If a program sets no kubeconfig, Pulumi's SDK sets the
    provider's kubeconfig to the value of the variable KUBECONFIG."""
    properties = plain_data(resource.provider.props) if resource.provider is not None else {}
    return {key: value for key in _SETTINGS if (value := properties.get(key)) is not None}


def _differ(one: _Settings, other: _Settings) -> bool:
    """Returns True if both providers have the same setting with different values. If a value is unknown, returns
    False."""
    return not _unknown((*one.values(), *other.values())) and any(
        one[key] != other[key] for key in _SETTINGS if key in one and key in other
    )


def _unknown(values: Iterable[object]) -> bool:
    return any(map(is_unknown, values))
