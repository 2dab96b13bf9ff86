"""Turns the SDK's view of the stack into plain objects. Unknown values become `Unknown`, which raises an error when
code uses the value."""

from collections.abc import Iterable, Iterator
from typing import Any

from pulumi_policy import PolicyResource
from pulumi_policy import proxy as sdk

from policy.objects import Object
from policy.unknown import Unknown

_MAP = type(sdk.unknown_checking_proxy({}))
_LIST = type(sdk.unknown_checking_proxy([]))
_UNKNOWN = frozenset(value for name, value in vars(sdk).items() if name.startswith("UNKNOWN_"))
_PREFIX = "kubernetes:"


def objects_of(resources: Iterable[PolicyResource]) -> tuple[Object, ...]:
    """Returns every resource of the Kubernetes provider as an object, and each item of a List as one object."""
    return tuple(
        object_
        for resource in resources
        if resource.resource_type.startswith(_PREFIX)
        for object_ in _objects(resource)
    )


def _objects(resource: PolicyResource) -> Iterator[Object]:
    """Yields the objects of a resource. A type token is `kubernetes:<group>/<version>:<Kind>`, with `core` for the
    group without a name."""
    _, module, kind = resource.resource_type.split(":")
    api_version = module.removeprefix("core/")
    props = plain_data(resource.props)
    if kind.endswith("List") and type(props.get("items")) is list:
        for item in props["items"]:
            if type(item) is dict:
                yield _object(kind.removesuffix("List"), api_version, item, resource.urn)
        return
    yield _object(kind, api_version, props, resource.urn)


def _object(kind: str, api_version: str, props: dict[str, Any], urn: str) -> Object:
    group = api_version.rpartition("/")[0]
    return Object(kind, group, {**props, "apiVersion": api_version, "kind": kind}, urn)


def plain_data(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """Turns proxies into dicts and lists, and unknown values into `Unknown`. `path` is (parent's path, key)."""
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
