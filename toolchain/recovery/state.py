"""What a stack's state says of a run that was killed, and the state that follows from it. Pure: a deployment in,
a deployment out, in the form of `pulumi stack export`.

An operation is written down before it begins and struck out when it has ended. So what is still there was under way:
objects that were being created may be in the cluster or not, and are not among the resources.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Deployment = Mapping[str, Any]
Resource = Mapping[str, Any]

RELEASE = "kubernetes:helm.sh/v3:Release"
_KUBERNETES = "kubernetes:"
_FIELD_MANAGER, _MANAGERS = "__fieldManager", "pulumi-kubernetes"
# Source: helm.sh/helm/v3/pkg/release/status.go.
_FAILED = "failed"
_HALF_INSTALLED = ("pending-install", "uninstalling")
_HALF_UPGRADED = ("pending-upgrade", "pending-rollback")


@dataclass(frozen=True)
class Operation:
    """What was being done to one object when the run ended: creating, updating, deleting or reading it."""

    kind: str
    resource: Resource

    @property
    def urn(self) -> str:
        return str(self.resource["urn"])

    @property
    def is_create(self) -> bool:
        return self.kind == "creating"

    @property
    def is_upgrade(self) -> bool:
        return self.kind == "updating" and self.resource["type"] == RELEASE

    @property
    def is_of_kubernetes(self) -> bool:
        """Not a component or a provider, which exist in the state alone."""
        return bool(self.resource.get("custom")) and str(self.resource["type"]).startswith(_KUBERNETES)

    @property
    def identity(self) -> str:
        """The provider's id: namespace/name, or the name."""
        inputs = self.resource["inputs"]
        metadata = inputs if self.resource["type"] == RELEASE else inputs["metadata"]
        return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))

    @property
    def title(self) -> str:
        return f"{str(self.resource['type']).rpartition(':')[2]} {self.identity}"


def interrupted(deployment: Deployment) -> list[Operation]:
    """The operations on the cluster's objects that never ended."""
    pending = deployment["deployment"].get("pending_operations") or []
    operations = [Operation(entry["type"], entry["resource"]) for entry in pending]
    return [operation for operation in operations if operation.is_of_kubernetes]


def is_clean(deployment: Deployment) -> bool:
    """No operation of any sort is left over."""
    return not deployment["deployment"].get("pending_operations")


def entered(deployment: Deployment, operations: Sequence[Operation]) -> Deployment:
    """With all that was being created among the resources, as if it had been: a refresh then asks the cluster."""
    resources = list(deployment["deployment"].get("resources") or [])
    for operation in operations:
        if operation.is_create:
            _enter(resources, {**operation.resource, "id": operation.identity, "outputs": {}})
    return _with(deployment, resources)


def settled(refreshed: Deployment, entered: Deployment, operations: Sequence[Operation]) -> Deployment:
    """After the refresh: without what somebody else made under the same name, and with the field manager under which
    each object was written. Under another one the next change of a field would be a conflict.

    A chart that was being upgraded is as it was before: after a refresh its values would be the new ones, and the next
    run would take for done what is not.
    """
    created = {operation.urn: operation for operation in operations if operation.is_create}
    upgraded = {operation.urn: old for operation, old in found(entered, operations) if operation.is_upgrade}
    resources = []
    for resource in refreshed["deployment"].get("resources") or []:
        operation = created.get(resource["urn"])
        if resource.get("delete") or operation is None:
            resources.append(upgraded.get(resource["urn"], resource))
        elif is_ours(resource, operation):
            resources.append({**resource, "outputs": {**resource["outputs"], **_field_manager(resource)}})
    return _with(refreshed, resources)


def is_ours(found: Resource, operation: Operation) -> bool:
    """Whether what was found is what was being created: a chart with the same values, an object that Pulumi wrote
    with the same labels."""
    wanted = operation.resource["inputs"]
    if found["type"] == RELEASE:
        return bool(found["inputs"].get("values") == wanted.get("values"))
    labels = found["outputs"]["metadata"].get("labels", {}).items()
    return bool(_field_manager(found)) and labels >= wanted["metadata"].get("labels", {}).items()


def found(deployment: Deployment, operations: Sequence[Operation]) -> Iterator[tuple[Operation, Resource]]:
    """Each operation whose object is among the resources, and that resource."""
    resources = deployment["deployment"].get("resources") or []
    by_urn = {resource["urn"]: resource for resource in resources if not resource.get("delete")}
    return ((operation, by_urn[operation.urn]) for operation in operations if operation.urn in by_urn)


def is_terminating(resource: Resource) -> bool:
    """Its deletion was asked for and waits for finalizers."""
    return "deletionTimestamp" in resource.get("outputs", {}).get("metadata", {})


def is_half_installed(resource: Resource, operation: Operation) -> bool:
    """A chart that never was whole or is being removed: Helm will neither install over it nor upgrade it. One whose
    upgrade failed is in use."""
    status = _status(resource)
    return status in _HALF_INSTALLED or (status == _FAILED and operation.is_create)


def is_half_upgraded(resource: Resource) -> bool:
    """A chart that worked before its upgrade was cut off, and may work still."""
    return _status(resource) in _HALF_UPGRADED


def way_out(half_upgraded: Resource) -> str:
    """What makes Helm forget the upgrade, and the release what it was before."""
    status = half_upgraded["outputs"]["status"]
    secret = f"sh.helm.release.v1.{status['name']}.v{status['revision']}"
    return f"kubectl -n {status['namespace']} delete secret {secret}"


def _status(resource: Resource) -> str | None:
    """Helm's word for how a release is; None of anything else."""
    if resource["type"] != RELEASE:
        return None
    status: str = resource["outputs"]["status"]["status"]
    return status


def _enter(resources: list[Resource], fresh: Resource) -> None:
    """A replacement takes the place of what is gone already or has the same name, else comes next to the one that the
    next run is to delete."""
    for index, old in enumerate(resources):
        if old["urn"] == fresh["urn"] and not old.get("delete"):
            if old.get("pendingReplacement") or old.get("id") == fresh["id"]:
                resources[index] = fresh
                return
            resources[index] = {**old, "delete": True}
    resources.append(fresh)


def _field_manager(resource: Resource) -> dict[str, str]:
    """Whom Pulumi was when it wrote the object; empty where it did not. With server-side apply off it has one name."""
    fields = resource.get("outputs", {}).get("metadata", {}).get("managedFields", [])
    written = [entry for entry in fields if entry.get("manager", "").startswith(_MANAGERS)]
    latest = max(written, key=lambda entry: str(entry.get("time", "")), default=None)
    return {_FIELD_MANAGER: latest["manager"]} if latest else {}


def _with(deployment: Deployment, resources: Sequence[Resource]) -> Deployment:
    inner = {key: value for key, value in deployment["deployment"].items() if key != "pending_operations"}
    return {**deployment, "deployment": {**inner, "resources": list(resources)}}
