"""Judges existing objects of the cluster before a rollout changes anything. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stacks.existing.planned import Identity, Planned, Release, owner, patcher
from stacks.problems import key
from tenancy import names

Object = Mapping[str, Any]

_OF_A_CLASS = ("value", "preemptionPolicy")
_GOING = "is being deleted; wait until it is gone, and run this again"
_INSTALLED = "deployed"  # The status of a release that Helm has installed.
# In the stack file, the operator names the objects of these kinds, as keys of these maps.
_NAMED_BY = {
    "ClusterQueue": ("queues", "cluster_queues"),
    "LocalQueue": ("queues", "local_queues"),
    "ResourceFlavor": ("queues", "flavors"),
    "WorkloadPriorityClass": ("queues", "workload_priorities"),
}
# The namespaces of the platform, by the label of their component.
_OF_A_NAMESPACE = {"system": ("cluster", "system_namespace"), "kueue": ("kueue", "namespace")}


def findings(planned: Iterable[Planned], there: Mapping[Identity, Object], going: Iterable[Identity] = ()) -> list[str]:
    """Returns one message for each object that the rollout would take over, and for each patch that does not match its
    object.

    `going` has the objects that the same rollout deletes.
    """
    deleted = set(going)
    lines = []
    for each in sorted(planned, key=lambda one: one.identity):
        found = there.get(each.identity)
        if each.is_patch:
            lines += [f"{each.identity}: {text}" for text in _of_a_patch(each, found, deleted)]
        elif found is not None and (text := _of_a_creation(each, found)):
            lines.append(f"{each.identity}: {text}")
    return lines


def reused_objects(planned: Iterable[Planned], there: Mapping[Identity, Object]) -> list[Identity]:
    """Returns the objects that the same stack created earlier and that the rollout would use again."""
    return sorted(
        each.identity
        for each in planned
        if not each.is_patch and (found := there.get(each.identity)) is not None and not _of_a_creation(each, found)
    )


def of_a_release(release: Release, secrets: Iterable[Object], definition: Object | None) -> list[str]:
    """Returns a message if Helm already has the release, or if Kueue was installed in another way.

    `secrets` are the Secrets in which Helm stores the release. `definition` is Kueue's CustomResourceDefinition.
    """
    named = f"Release {release.namespace}/{release.name}"
    statuses = {(each["metadata"].get("labels") or {}).get("status") for each in secrets}
    if _INSTALLED in statuses:
        return [f"{named}: Helm has installed it already; remove {key('kueue')}, or uninstall it"]
    if statuses:
        forget = f"kubectl -n {release.namespace} delete secret -l owner=helm,name={release.name}"
        return [f"{named}: an installation did not end; if it was this stack's, let Helm forget it: {forget}"]
    annotations = (definition or {"metadata": {}})["metadata"].get("annotations") or {}
    owner = (annotations.get("meta.helm.sh/release-namespace"), annotations.get("meta.helm.sh/release-name"))
    if definition is not None and owner != (release.namespace, release.name):
        return [f"{named}: Kueue is installed already in another way; remove {key('kueue')}, or uninstall it"]
    return []


def _of_a_creation(planned: Planned, found: Object) -> str | None:
    """Returns the finding on an existing object. Returns None if the same stack created the object and may use it
    again."""
    wanted, metadata, there = owner(planned.manifest), found["metadata"], owner(found)
    if there is not None and there == wanted:
        return _GOING if "deletionTimestamp" in metadata else None
    if planned.identity.kind == "PriorityClass":
        return _of_a_class(planned, found)
    if there is not None:
        return f"is of the stack {there}; two stacks cannot have the same object"
    if (metadata.get("labels") or {}).get(names.LABEL_PART_OF) == names.PROJECT:
        return (
            "is of an earlier rollout, which is not in the state of this stack; restore that state, or hand the object "
            f"to this stack: kubectl annotate {_for_kubectl(planned.identity)} {names.STACK}={wanted}"
        )
    return f"is there already; {_way_out(planned.identity)}"


def _of_a_class(planned: Planned, found: Object) -> str:
    where = key("priorities", planned.identity.name)
    different = _different(planned.manifest, found)
    if not different:
        return f"is there already, with the same value; write create: false under {where}"
    return f"is there already, with {different}; write that under {where} and create: false, or choose another name"


def is_the_platforms(home: Planned) -> bool:
    """Returns True for the namespace of the agents or of Kueue, which the platform wants for itself."""
    return _component(home) in _OF_A_NAMESPACE


def another_name(home: Planned) -> str:
    return f"write another name under {key(*_OF_A_NAMESPACE[_component(home)])}"


def _component(of: Planned) -> str:
    return str((of.manifest["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT))


def _way_out(identity: Identity) -> str:
    if identity.kind in _NAMED_BY:
        return f"choose another name under {key(*_NAMED_BY[identity.kind])}, or delete it"
    return f"delete it if nobody needs it: kubectl delete {_for_kubectl(identity)}"


def _of_a_patch(planned: Planned, found: Object | None, going: set[Identity]) -> Iterator[str]:
    identity = planned.identity
    if identity.kind == "PriorityClass":
        where = key("priorities", identity.name)
        if identity in going:
            yield f"was made by this stack, which would delete it; remove create: false under {where}"
        elif found is None:
            yield f"is not there; remove create: false under {where}"
        elif different := _different(planned.manifest, found):
            yield f"is there with {different}; write that under {where}, or choose another name"
    elif found is not None and "deletionTimestamp" in found["metadata"]:
        yield _GOING
    elif found is not None and patcher(found) not in (None, patcher(planned.manifest)):
        yield f"is of the stack {patcher(found)}; two stacks cannot label the same namespace"
    elif found is not None:
        yield from _of_labels(planned, found)


def _of_labels(planned: Planned, found: Object) -> Iterator[str]:
    labels, have = planned.manifest["metadata"].get("labels") or {}, found["metadata"].get("labels") or {}
    patched = ((planned.before or {}).get("metadata") or {}).get("labels") or {}
    for label, wanted in sorted(labels.items()):
        value = have.get(label, wanted)
        if value in (wanted, patched.get(label)):
            continue
        change = f"kubectl label namespace {planned.identity.name} --overwrite {label}={wanted}"
        level = f", or write pod_security: {value} under {key('tenants', planned.identity.name)}"
        setting = level if label == names.POD_SECURITY_ENFORCE and not is_the_platforms(planned) else ""
        yield f"its label {label} is {value}, and would be {wanted}; change it: {change}{setting}"


def _different(wanted: Object, found: Object) -> str:
    defaults = {"value": 0, "preemptionPolicy": "PreemptLowerPriority"}
    there = {field: found.get(field, defaults[field]) for field in _OF_A_CLASS}
    return " and ".join(f"{field} {value}" for field, value in there.items() if value != wanted.get(field))


def _for_kubectl(identity: Identity) -> str:
    within = f" -n {identity.namespace}" if identity.namespace else ""
    group, _, version = identity.api_version.rpartition("/")
    kind = f"{identity.kind.lower()}.{version}.{group}" if group else identity.kind.lower()
    return f"{kind} {identity.name}{within}"
