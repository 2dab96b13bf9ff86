"""Names the objects of a stack: those of its state, those that its program declares, and those in the cluster."""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from agents.kube.errors import Object
from stacks.cluster import Cluster
from stacks.preview.events import Resource
from tenancy import names

_KUBERNETES, _PATCH, _KUEUE = "kubernetes:", "Patch", "kueue.x-k8s.io"
_SHOWN, _AT_ONCE = 10, 8
RELEASE_TYPE, _RELEASE = "kubernetes:helm.sh/v3:Release", "Release"


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

    @property
    def manifest(self) -> Object:
        namespace = {"namespace": self.namespace} if self.namespace else {}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": self.name, **namespace}}

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Declared:
    """An object that the program declares, or that the state has.

    With `is_patch`, the stack only patches the object, which has another owner. A Helm release is an object too.
    """

    identity: Identity
    manifest: Object
    is_patch: bool = False

    @property
    def key(self) -> tuple[bool, Identity]:
        """The same for each version of the API group."""
        return self.is_patch, self.identity.unversioned

    @property
    def is_release(self) -> bool:
        return self.identity.kind == _RELEASE


def declared(resource: Resource) -> Declared | None:
    """Returns the object that the program declares. Returns None for a resource that is no object, or that goes."""
    return _declared(resource.type, resource.inputs)


def in_state(resource: Mapping[str, Any]) -> Declared | None:
    """Returns the object of a resource that `pulumi stack export` prints. Returns None if it is no object."""
    return _declared(str(resource["type"]), resource.get("inputs") or {})


def _declared(token: str, inputs: Object) -> Declared | None:
    if token == RELEASE_TYPE and inputs:
        return Declared(Identity(_RELEASE, str(inputs.get("namespace", "")), str(inputs.get("name", "")), ""), inputs)
    if not token.startswith(_KUBERNETES) or not {"apiVersion", "kind", "metadata"} <= inputs.keys():
        return None
    return Declared(identity(inputs), inputs, is_patch_type(token))


def identity(manifest: Object) -> Identity:
    metadata = manifest["metadata"]
    return Identity(
        str(manifest["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]), str(manifest["apiVersion"])
    )


def is_patch_type(token: str) -> bool:
    """Returns True for the type of a resource that only patches an object."""
    return token.startswith(_KUBERNETES) and token.endswith(_PATCH)


def owner(manifest: Object) -> str | None:
    """Returns the mark of the stack that has created the object, or None if no stack has."""
    return (manifest["metadata"].get("annotations") or {}).get(names.STACK)


def patcher(manifest: Object) -> str | None:
    """Returns the field manager of the stack that has patched the object, or None if no stack has."""
    return (manifest["metadata"].get("annotations") or {}).get(names.FIELD_MANAGER)


def objects(
    cluster: Cluster, kinds: Mapping[str, Collection[str]], selectors: Mapping[str, str] | None = None
) -> list[tuple[Identity, Object]]:
    """Returns all objects of the kinds, by one list request for each kind that the cluster serves.

    `kinds` maps each API version to its kinds, and `selectors` a kind to its label selector.
    """
    only = {kind: {"labelSelector": selector} for kind, selector in (selectors or {}).items()}
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        served = threads.map(lambda version: resources(cluster, version), kinds)
        paths = {
            (version, each["kind"]): f"{group_path(version)}/{each['name']}"
            for (version, wanted), found in zip(kinds.items(), served, strict=True)
            for each in found
            if each["kind"] in wanted
        }
        lists = threads.map(lambda of: [*cluster.items(paths[of], **only.get(of[1], {}))], paths)
        return [
            (identity({"apiVersion": version, "kind": kind, "metadata": each["metadata"]}), each)
            for (version, kind), items in zip(paths, lists, strict=True)
            for each in items
        ]


def resources(cluster: Cluster, api_version: str) -> list[Object]:
    """Returns what the cluster serves of an API group, without subresources."""
    served = (cluster.find(group_path(api_version)) or {}).get("resources", ())
    return [each for each in served if "/" not in each["name"]]


def group_path(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def listed(found: Collection[object]) -> str:
    """Returns the first names, and how many more there are."""
    shown = ", ".join(str(each) for each in [*found][:_SHOWN])
    return shown + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
