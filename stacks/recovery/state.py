"""Computes the state of a stack after a Pulumi run was killed.

States have the same structure as the output of `pulumi stack export`. Pulumi adds an operation to `pending_operations`
before the operation begins, and removes the entry when the operation has ended. Therefore an operation in
`pending_operations` was interrupted. If the interrupted operation was a creation, its object is not among the
resources. The object of an interrupted creation may exist or not.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Deployment = Mapping[str, Any]
Resource = Mapping[str, Any]

RELEASE = "kubernetes:helm.sh/v3:Release"
_KUBERNETES = "kubernetes:"
_PROVIDER = "pulumi:providers:"
# The steps of a plan that change nothing.
_UNCHANGED = frozenset({"same", "read", "refresh"})
_FIELD_MANAGER, _MANAGERS = "__fieldManager", "pulumi-kubernetes"
# Source: helm.sh/helm/v3/pkg/release/status.go.
_FAILED = "failed"
_HALF_INSTALLED = ("pending-install", "uninstalling")
_HALF_UPGRADED = ("pending-upgrade", "pending-rollback")


@dataclass(frozen=True)
class Operation:
    """An interrupted operation on one object. `kind` is creating, updating, deleting or reading."""

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
        """True if the resource is an object of the cluster. Components and providers exist only in the state."""
        return bool(self.resource.get("custom")) and str(self.resource["type"]).startswith(_KUBERNETES)

    @property
    def identity(self) -> str:
        """The id that the provider gives the object: namespace/name, or the name of a cluster-scoped object."""
        inputs = self.resource["inputs"]
        return _id(inputs if self.resource["type"] == RELEASE else inputs["metadata"])

    @property
    def title(self) -> str:
        return f"{str(self.resource['type']).rpartition(':')[2]} {self.identity}"


def interrupted(deployment: Deployment) -> list[Operation]:
    """Returns the interrupted operations on objects of the cluster."""
    pending = deployment["deployment"].get("pending_operations") or []
    operations = [Operation(entry["type"], entry["resource"]) for entry in pending]
    return [operation for operation in operations if operation.is_of_kubernetes]


def planned(plan: Mapping[str, Any], before: Deployment) -> list[Operation]:
    """Returns the operations of a plan that `pulumi preview --save-plan` wrote for the state `before`.

    A resource comes after the resources on which it depends. The operations include those on components and providers.
    A replacement under the same name counts as an update, because the state already has an object with this name.
    """
    resources = before["deployment"].get("resources") or []
    old = {each["urn"]: each for each in resources if not each.get("delete")}
    plans: Mapping[str, Any] = plan["resourcePlans"]
    operations = []
    for urn in _in_order(plans):
        if set(plans[urn]["steps"] or ()) <= _UNCHANGED:
            continue
        goal, known = plans[urn].get("goal"), old.get(urn)
        if goal is None or "create" not in {step.removesuffix("-replacement") for step in plans[urn]["steps"]}:
            operations += [Operation("updating" if goal else "deleting", known)] if known else []
            continue
        created = Operation("creating", _declared(urn, goal, known or {}))
        is_same = known and created.is_of_kubernetes and known.get("id") == created.identity
        operations.append(Operation("updating", known) if known and is_same else created)
    return operations


def _in_order(plans: Mapping[str, Any]) -> list[str]:
    ordered: dict[str, None] = {}
    for urn in plans:
        waiting = [urn]
        while waiting:
            goal = plans[waiting[-1]].get("goal") or {}
            needed = [goal.get("parent"), goal.get("provider", "").rpartition("::")[0], *goal.get("dependencies", ())]
            missing = [each for each in needed if each in plans and each not in ordered]
            if missing:
                waiting += reversed(missing)
            else:
                ordered[waiting.pop()] = None
    return list(ordered)


def _declared(urn: str, goal: Mapping[str, Any], old: Resource) -> Resource:
    """Returns the resource that the plan creates, with the inputs of `old` that the plan does not change."""
    diff = goal["inputDiff"]
    kept = {key: value for key, value in old.get("inputs", {}).items() if key not in (diff.get("deletes") or ())}
    inputs = {**kept, **(diff.get("adds") or {}), **(diff.get("updates") or {})}
    copied = {key: goal[key] for key in ("parent", "provider", "dependencies", "propertyDependencies") if key in goal}
    return {"urn": urn, "type": goal["type"], "custom": goal["custom"], "inputs": inputs, **copied}


def is_clean(deployment: Deployment) -> bool:
    """Returns True if the state contains no interrupted operation."""
    return not deployment["deployment"].get("pending_operations")


def with_creations(deployment: Deployment, operations: Sequence[Operation]) -> Deployment:
    """Adds the objects of interrupted creations to the resources. Therefore a refresh reads the objects of interrupted
    creations from the cluster."""
    resources = list(deployment["deployment"].get("resources") or [])
    providers: dict[str, str] = {}
    for operation in filter(lambda each: each.is_create, operations):
        fresh = {**operation.resource, "outputs": {}}
        provider = fresh.get("provider", "").rpartition("::")[0]
        if provider in providers:
            fresh["provider"] = f"{provider}::{providers[provider]}"
        if operation.is_of_kubernetes:
            fresh["id"] = operation.identity
        elif str(fresh["type"]).startswith(_PROVIDER):
            fresh["id"] = providers[operation.urn] = str(uuid.uuid4())
        _enter(resources, fresh)
    return _with(deployment, resources)


def without_foreign(refreshed: Deployment, entered: Deployment, operations: Sequence[Operation]) -> Deployment:
    """Returns the refreshed state.

    The returned state leaves out objects that another program created with the same name. Each created object keeps the
    field manager that wrote it. With another field manager, the next change of the object would cause a conflict. A
    chart with an interrupted upgrade keeps its old values. With the refreshed values, the next run would not upgrade a
    chart again after an interrupted upgrade.
    """
    of_kubernetes = [operation for operation in operations if operation.is_of_kubernetes]
    created = {operation.urn: operation for operation in of_kubernetes if operation.is_create}
    updated = {operation.urn for operation in of_kubernetes if operation.kind == "updating"}
    upgraded = {operation.urn: old for operation, old in with_resources(entered, operations) if operation.is_upgrade}
    resources = []
    for resource in refreshed["deployment"].get("resources") or []:
        operation = created.get(resource["urn"])
        if resource["urn"] in upgraded or resource.get("delete"):
            resources.append(upgraded.get(resource["urn"], resource))
        elif resource["urn"] in updated or (operation is not None and is_ours(resource, operation)):
            outputs = {**resource.get("outputs", {}), **_field_manager(resource)}
            # Without the CRD, the provider gives a cluster-scoped object the namespace `default` in its inputs.
            known = {"id": _id(outputs["metadata"])} if "name" in outputs.get("metadata", {}) else {}
            resources.append({**resource, **known, "outputs": outputs})
        elif operation is None:
            resources.append(resource)
    parts = {each.urn for each in operations if each.kind != "updating" and not each.is_of_kubernetes}
    return _with(refreshed, _without_missing(_without_unused(resources, parts)))


def _without_unused(resources: Sequence[Resource], parts: Collection[str]) -> list[Resource]:
    """Returns the resources without those components and providers of `parts` that no object has.

    An unused component could depend on a half-installed chart. Then Pulumi would refuse to remove the chart.
    """
    by_urn = {each["urn"]: each for each in resources}
    used: set[str] = set()
    waiting = [each for each in resources if each["urn"] not in parts]
    while waiting:
        each = waiting.pop()
        owners = (each.get("parent"), each.get("provider", "").rpartition("::")[0])
        fresh = {str(urn) for urn in owners if urn in by_urn} - used
        used |= fresh
        waiting += [by_urn[urn] for urn in fresh]
    return [each for each in resources if each["urn"] in used or each["urn"] not in parts]


def _without_missing(resources: Sequence[Resource]) -> Iterator[Resource]:
    """Yields the resources without their dependencies on missing resources, which Pulumi would refuse."""
    urns = {each["urn"] for each in resources}
    for each in resources:
        of_properties = each.get("propertyDependencies") or {}
        if urns >= {*each.get("dependencies", ()), *(urn for found in of_properties.values() for urn in found or ())}:
            yield each
            continue
        kept = {key: [urn for urn in found or () if urn in urns] for key, found in of_properties.items()}
        dependencies = [urn for urn in each.get("dependencies", ()) if urn in urns]
        yield {**each, "dependencies": dependencies, "propertyDependencies": kept}


def is_ours(found: Resource, operation: Operation) -> bool:
    """Returns True if the interrupted creation made the object.

    If the object is a chart, the chart's values must be those of the interrupted creation. Any other object must have
    the labels of the interrupted creation, and Pulumi must have written the object.
    """
    wanted = operation.resource["inputs"]
    if found["type"] == RELEASE:
        return bool(found["inputs"].get("values") == wanted.get("values"))
    labels = found["outputs"]["metadata"].get("labels", {}).items()
    return bool(_field_manager(found)) and labels >= wanted["metadata"].get("labels", {}).items()


def with_resources(deployment: Deployment, operations: Sequence[Operation]) -> Iterator[tuple[Operation, Resource]]:
    """Yields each operation that has a resource in the state, together with this resource."""
    resources = deployment["deployment"].get("resources") or []
    by_urn = {resource["urn"]: resource for resource in resources if not resource.get("delete")}
    return ((operation, by_urn[operation.urn]) for operation in operations if operation.urn in by_urn)


def is_terminating(resource: Resource) -> bool:
    """Returns True if the object has a deletionTimestamp and therefore waits for its finalizers."""
    return "deletionTimestamp" in resource.get("outputs", {}).get("metadata", {})


def is_half_installed(resource: Resource, operation: Operation) -> bool:
    """Returns True for a chart with an interrupted installation or removal. Helm cannot upgrade a chart with an
    interrupted installation or removal."""
    status = _status(resource)
    return status in _HALF_INSTALLED or (status == _FAILED and operation.is_create)


def is_half_upgraded(resource: Resource) -> bool:
    """Returns True for a chart with an interrupted upgrade. The programs of a chart with an interrupted upgrade can
    still run correctly."""
    return _status(resource) in _HALF_UPGRADED


def deletion_command(half_upgraded: Resource) -> str:
    """Returns a command that deletes Helm's record of the interrupted upgrade."""
    status = half_upgraded["outputs"]["status"]
    secret = f"sh.helm.release.v1.{status['name']}.v{status['revision']}"
    return f"kubectl -n {status['namespace']} delete secret {secret}"


def _id(metadata: Mapping[str, Any]) -> str:
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def _status(resource: Resource) -> str | None:
    """Returns Helm's status of a release, or None for a resource of another kind."""
    if resource["type"] != RELEASE:
        return None
    status: str = resource["outputs"]["status"]["status"]
    return status


def _enter(resources: list[Resource], fresh: Resource) -> None:
    """Adds a resource to the state.

    Replaces an old resource with the same URN if the old object is gone or has the same name as the new object. In all
    other cases, marks the old resource for deletion.
    """
    for index, old in enumerate(resources):
        if old["urn"] == fresh["urn"] and not old.get("delete"):
            if old.get("pendingReplacement") or old.get("id") == fresh.get("id"):
                resources[index] = fresh
                return
            resources[index] = {**old, "delete": True}
    resources.append(fresh)


def _field_manager(resource: Resource) -> dict[str, str]:
    fields = resource.get("outputs", {}).get("metadata", {}).get("managedFields", [])
    written = [entry for entry in fields if entry.get("manager", "").startswith(_MANAGERS)]
    latest = max(written, key=lambda entry: str(entry.get("time", "")), default=None)
    return {_FIELD_MANAGER: latest["manager"]} if latest else {}


def _with(deployment: Deployment, resources: Iterable[Resource]) -> Deployment:
    inner = {key: value for key, value in deployment["deployment"].items() if key != "pending_operations"}
    return {**deployment, "deployment": {**inner, "resources": list(resources)}}
