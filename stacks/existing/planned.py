"""Finds the objects that appear in the cluster, are patched, or disappear.

An object appears or disappears if the identities before and after the rollout differ, whatever Pulumi calls the step. A
replacement under another name creates one object and deletes another.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stacks.preview.events import Op, Resource

_KUBERNETES = "kubernetes:"
_PATCH = "Patch"
RELEASE_TYPE = "kubernetes:helm.sh/v3:Release"


@dataclass(frozen=True, order=True)
class Identity:
    """The identity of an object in Kubernetes. `namespace` is empty for a cluster-scoped object."""

    kind: str
    namespace: str
    name: str
    api_version: str

    def is_same(self, other: "Identity | None") -> bool:
        """Returns True for the same object, also if another version of its API group names it."""
        return (
            other is not None and replace(other, api_version=self.api_version) == self and _group(other) == _group(self)
        )

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
        elif not after.is_same(before):
            yield Planned(after, resource.inputs)


def releases(resources: Iterable[Resource]) -> Iterator[Release]:
    """Yields the Helm releases that the rollout would install."""
    for resource in resources:
        if resource.type == RELEASE_TYPE and resource.inputs:
            after = _release(resource.inputs)
            if not resource.before or _release(resource.before) != after:
                yield after


def deleted(resources: Iterable[Resource]) -> Iterator[tuple[Identity, Resource]]:
    """Yields the objects that disappear from the cluster for good. A replacement under another name is one of them."""
    for resource in resources:
        before = _identity(resource.before)
        if before is None or not resource.type.startswith(_KUBERNETES) or is_patch(resource) or resource.retained:
            continue
        if not before.is_same(_identity(resource.inputs)):
            yield before, resource


def identity(manifest: Mapping[str, Any]) -> Identity:
    metadata = manifest["metadata"]
    return Identity(
        str(manifest["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]), str(manifest["apiVersion"])
    )


def is_patch(resource: Resource) -> bool:
    return resource.type.startswith(_KUBERNETES) and resource.type.endswith(_PATCH)


def _identity(manifest: Mapping[str, Any]) -> Identity | None:
    """Returns None if the manifest is no object: the resource is not there, or is of another kind."""
    return identity(manifest) if {"apiVersion", "kind", "metadata"} <= manifest.keys() else None


def _group(identity: Identity) -> str:
    return identity.api_version.rpartition("/")[0]


def _release(inputs: Mapping[str, Any]) -> Release:
    return Release(str(inputs.get("namespace", "")), str(inputs.get("name", "")))
