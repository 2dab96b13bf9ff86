"""Finds the objects that appear in the cluster, are patched, or disappear.

An object appears or disappears if the identities before and after the rollout differ, whatever Pulumi calls the step. A
replacement under another name creates one object and deletes another.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stacks.preview.events import Op, Resource
from tenancy import names

_KUBERNETES = "kubernetes:"
_PATCH, _KUEUE = "Patch", "kueue.x-k8s.io"
_SHOWN = 10
RELEASE_TYPE, RELEASE = "kubernetes:helm.sh/v3:Release", "Release"


@dataclass(frozen=True, order=True)
class Identity:
    """The identity of an object in Kubernetes. `namespace` is empty for a cluster-scoped object."""

    kind: str
    namespace: str
    name: str
    api_version: str

    @property
    def unversioned(self) -> "Identity":
        """The same object with its API group alone, because each version of the group can name the object.

        While the cluster does not know a kind, the provider gives its objects the namespace `default`. Of the kinds of
        Kueue, only LocalQueue has a namespace.
        """
        group = self.api_version.rpartition("/")[0]
        has_none = group == _KUEUE and self.kind != "LocalQueue"
        return replace(self, api_version=group, namespace="" if has_none else self.namespace)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Planned:
    """An object that a rollout would create.

    With `is_patch`, the rollout would only patch the object, which another owner created. `before` has the fields that
    the last rollout patched.
    """

    identity: Identity
    manifest: Mapping[str, Any]
    is_patch: bool = False
    before: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Release:
    """A Helm release that a rollout would install."""

    namespace: str
    name: str


def planned(resources: Iterable[Resource]) -> Iterator[Planned]:
    """Yields the objects that appear in the cluster, and the patches that are new or change."""
    for resource in resources:
        before, after = _identity(resource.before), _identity(resource.inputs)
        if not resource.type.startswith(_KUBERNETES) or after is None or resource.op is Op.SAME:
            continue
        if is_patch(resource):
            yield Planned(after, resource.inputs, is_patch=True, before=resource.before if before == after else None)
        elif before is None or before.unversioned != after.unversioned:
            yield Planned(after, resource.inputs)


def releases(resources: Iterable[Resource]) -> Iterator[Release]:
    """Yields the Helm releases that the rollout would install."""
    for resource in resources:
        if resource.type == RELEASE_TYPE and resource.inputs:
            after = _release(resource.inputs)
            if not resource.before or _release(resource.before) != after:
                yield after


def deleted(resources: Iterable[Resource]) -> Iterator[Identity]:
    """Yields the objects that disappear from the cluster for good. A replacement under another name is one of them."""
    for resource in resources:
        before, after = _identity(resource.before), _identity(resource.inputs)
        if before is None or not resource.type.startswith(_KUBERNETES) or is_patch(resource):
            continue
        if after is None or before.unversioned != after.unversioned:
            yield before


def identity(manifest: Mapping[str, Any]) -> Identity:
    metadata = manifest["metadata"]
    return Identity(
        str(manifest["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]), str(manifest["apiVersion"])
    )


def owner(manifest: Mapping[str, Any]) -> str | None:
    """Returns the mark of the stack that has created the object, or None if no stack has."""
    return (manifest["metadata"].get("annotations") or {}).get(names.STACK)


def patcher(manifest: Mapping[str, Any]) -> str | None:
    """Returns the field manager of the stack that has patched the object, or None if no stack has."""
    return (manifest["metadata"].get("annotations") or {}).get(names.FIELD_MANAGER)


def is_patch(resource: Resource) -> bool:
    return is_patch_type(resource.type)


def is_patch_type(token: str) -> bool:
    """Returns True for the type of a resource that only patches an object."""
    return token.startswith(_KUBERNETES) and token.endswith(_PATCH)


def declared(resources: Iterable[Resource]) -> set[Identity]:
    """Returns all objects, patched objects and Helm releases that the program declares, without the version of their
    API group.
    """
    declared = [each for each in resources if each.type.startswith(_KUBERNETES) and each.inputs]
    objects = {found.unversioned for each in declared if (found := _identity(each.inputs)) is not None}
    releases = (_release(each.inputs) for each in declared if each.type == RELEASE_TYPE)
    return objects | {Identity(RELEASE, each.namespace, each.name, "") for each in releases}


def _identity(manifest: Mapping[str, Any]) -> Identity | None:
    """Returns None if the manifest is no object: the resource is not there, or is of another kind."""
    return identity(manifest) if {"apiVersion", "kind", "metadata"} <= manifest.keys() else None


def _release(inputs: Mapping[str, Any]) -> Release:
    return Release(str(inputs.get("namespace", "")), str(inputs.get("name", "")))


def listed(found: Collection[object]) -> str:
    """Returns the first names, and how many more there are."""
    shown = ", ".join(str(each) for each in [*found][:_SHOWN])
    return shown + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
