"""Judges existing objects of the cluster before a rollout changes anything. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from agents.kube.errors import Object
from stacks.existing.objects import Declared, Identity, owner, patcher
from stacks.problems import key
from tenancy import names
from tenancy.workload import map_at, maps_at

_OF_A_CLASS = {"value": 0, "preemptionPolicy": "PreemptLowerPriority"}  # with Kubernetes' defaults
_GOING = "is being deleted; wait until it is gone, and run this again"
# The namespaces of the platform, by the label of their component.
_OF_A_NAMESPACE = {"system": ("cluster", "system_namespace"), "kueue": ("kueue", "namespace")}


def findings(
    declared: Iterable[Declared], there: Mapping[Identity, Object], own: Collection[tuple[bool, Identity]] = ()
) -> Iterator[str]:
    """Yields one message for each object that the rollout would take over, and for each patch that does not match its
    object.

    `there` has the objects of the cluster, without the versions of their API groups. `own` has the keys of the state.
    """
    for each in sorted(declared, key=lambda one: one.identity):
        found = there.get(each.identity.unversioned)
        if not each.is_patch:
            texts = _of_a_creation(each, found) if found is not None else ()
        elif each.identity.kind == "PriorityClass":
            texts = _of_a_patched_class(each, found, is_own=(False, each.identity.unversioned) in own)
        else:
            texts = _of_a_patched_namespace(each, found) if found is not None else ()
        yield from (f"{each.identity}: {text}" for text in texts)


def of_a_release(release: Declared, secrets: Iterable[Object], definition: Object | None) -> Iterator[str]:
    """Yields a message if Helm already has the release, or if Kueue was installed in another way.

    `secrets` are the Secrets in which Helm stores the release. `definition` is Kueue's CustomResourceDefinition.
    """
    of = release.identity
    annotations = map_at(definition or {}, "metadata", "annotations")
    installed_as = (annotations.get("meta.helm.sh/release-namespace"), annotations.get("meta.helm.sh/release-name"))
    if statuses := sorted({str(map_at(each, "metadata", "labels").get("status")) for each in secrets}):
        forget = f"kubectl -n {of.namespace} delete secret -l owner=helm,name={of.name}"
        yield (
            f"{of}: Helm has it already ({', '.join(statuses)}); remove {key('kueue')}, or uninstall it; "
            f"if its installation did not end, let Helm forget it: {forget}"
        )
    elif definition is not None and installed_as != (of.namespace, of.name):
        yield f"{of}: Kueue is installed already in another way; remove {key('kueue')}, or uninstall it"


def is_the_platforms(home: Declared) -> bool:
    """Returns True for the namespace of the agents or of Kueue, which the platform wants for itself."""
    return _component(home) in _OF_A_NAMESPACE


def another_name(home: Declared) -> str:
    return f"write another name under {key(*_OF_A_NAMESPACE[_component(home)])}"


def _component(of: Declared) -> str:
    return str(map_at(of.manifest, "metadata", "labels").get(names.LABEL_COMPONENT))


def _of_a_creation(declared: Declared, found: Object) -> Iterator[str]:
    """Yields nothing if the same stack created the object, and may use it again."""
    wanted, metadata, there, of = owner(declared.manifest), found["metadata"], owner(found), declared.identity
    if there is not None and there == wanted:
        if "deletionTimestamp" in metadata:
            yield _GOING
    elif of.kind == "PriorityClass":
        amounts = _different(declared.manifest, found) or "the same value"
        where = key("priorities", of.name)
        yield f"is there already, with {amounts}; write that under {where} and create: false, or choose another name"
    elif there is not None:
        yield f"is of the stack {there}; two stacks cannot have the same object"
    elif map_at(metadata, "labels").get(names.LABEL_PART_OF) == names.PROJECT:
        yield (
            "is of an earlier rollout, which is not in the state of this stack; restore that state, or hand the object "
            f"to this stack: kubectl annotate {_for_kubectl(of)} {names.STACK}={wanted}"
        )
    else:
        yield (
            "is there already; choose another name if the stack file names it, or delete it if nobody needs it: "
            f"kubectl delete {_for_kubectl(of)}"
        )


def _of_a_patched_class(declared: Declared, found: Object | None, *, is_own: bool) -> Iterator[str]:
    where = key("priorities", declared.identity.name)
    if is_own:
        yield f"was made by this stack, which would delete it; remove create: false under {where}"
    elif found is None:
        yield f"is not there; remove create: false under {where}"
    elif different := _different(declared.manifest, found):
        yield f"is there with {different}; write that under {where}, or choose another name"


def _of_a_patched_namespace(declared: Declared, found: Object) -> Iterator[str]:
    ours, theirs = patcher(declared.manifest), patcher(found)
    if "deletionTimestamp" in found["metadata"]:
        yield _GOING
    elif theirs not in (None, ours):
        yield f"is of the stack {theirs}; two stacks cannot label the same namespace"
    else:
        yield from _of_labels(declared, labels_of_others(found, ours))


def labels_of_others(found: Object, manager: str | None) -> Object:
    """Returns the labels that this field manager did not set. A rollout may change the labels of an earlier one."""
    fields = (each for each in maps_at(map_at(found, "metadata"), "managedFields") if each.get("manager") == manager)
    ours = {label.removeprefix("f:") for each in fields for label in map_at(each, "fieldsV1", "f:metadata", "f:labels")}
    return {label: value for label, value in map_at(found, "metadata", "labels").items() if label not in ours}


def _of_labels(declared: Declared, have: Object) -> Iterator[str]:
    name = declared.identity.name
    for label, wanted in sorted(map_at(declared.manifest, "metadata", "labels").items()):
        value = have.get(label, wanted)
        if value == wanted:
            continue
        change = f"kubectl label namespace {name} --overwrite {label}={wanted}"
        level = f", or write pod_security: {value} under {key('tenants', name)}"
        setting = level if label == names.POD_SECURITY_ENFORCE and not is_the_platforms(declared) else ""
        yield f"its label {label} is {value}, and would be {wanted}; change it: {change}{setting}"


def _different(wanted: Object, found: Object) -> str:
    there = {field: found.get(field, default) for field, default in _OF_A_CLASS.items()}
    return " and ".join(f"{field} {value}" for field, value in there.items() if value != wanted.get(field))


def _for_kubectl(identity: Identity) -> str:
    within = f" -n {identity.namespace}" if identity.namespace else ""
    group, _, version = identity.api_version.rpartition("/")
    kind = f"{identity.kind.lower()}.{version}.{group}" if group else identity.kind.lower()
    return f"{kind} {identity.name}{within}"
