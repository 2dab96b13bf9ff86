"""Finds the objects that a preview would create or patch."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
    """Yields the objects that the rollout would create or change by a patch."""
    for resource in resources:
        patch = is_patch(resource)
        if not _is_an_object(resource) or resource.op not in ((Op.CREATE, Op.UPDATE) if patch else (Op.CREATE,)):
            continue
        before = resource.before if resource.op is Op.UPDATE else None
        yield Planned(identity(resource.inputs), resource.inputs, patch, before)


def releases(resources: Iterable[Resource]) -> Iterator[Release]:
    """Yields the Helm releases that the rollout would install."""
    for resource in resources:
        if resource.type == RELEASE_TYPE and resource.op is Op.CREATE:
            yield Release(str(resource.inputs.get("namespace", "")), str(resource.inputs.get("name", "")))


def deleted(resources: Iterable[Resource]) -> Iterator[tuple[Identity, Resource]]:
    """Yields the objects that the rollout would delete from the cluster for good."""
    for resource in resources:
        is_an_object = resource.type.startswith(_KUBERNETES) and "metadata" in resource.before
        if resource.op is Op.DELETE and is_an_object and not resource.retained and not is_patch(resource):
            yield identity(resource.before), resource


def identity(manifest: Mapping[str, Any]) -> Identity:
    metadata = manifest["metadata"]
    return Identity(
        str(manifest["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]), str(manifest["apiVersion"])
    )


def is_patch(resource: Resource) -> bool:
    return resource.type.startswith(_KUBERNETES) and resource.type.endswith(_PATCH)


def _is_an_object(resource: Resource) -> bool:
    return resource.type.startswith(_KUBERNETES) and {"apiVersion", "kind", "metadata"} <= resource.inputs.keys()
