"""Finds the changes of a preview that make a part of the stack enforce, or make a part only observe."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stacks.preview.events import Op, Resource
from tenancy import names

_ACTS = {
    "ValidatingAdmissionPolicyBinding": ("policies begin to deny", "policies only warn from now on"),
    "MutatingAdmissionPolicyBinding": ("policies begin to change pods", "policies no longer change pods"),
    "ResourceQuota": ("tenants get a quota", "tenants lose their quota"),
    "Namespace": ("namespaces begin to enforce Pod Security", "namespaces only warn by Pod Security from now on"),
    "CronJob": ("agents begin to act", "agents only report from now on"),
    "DaemonSet": ("agents on nodes begin to act", "agents on nodes end"),
}
_ALONE = ("MutatingAdmissionPolicyBinding", "ResourceQuota", "DaemonSet")  # these objects act as soon as they exist


def changed_modes(resources: Iterable[Resource]) -> list[str]:
    """Returns one message for each kind of change, with the names of the objects.

    For a new stack, returns an empty list, because every part begins to act.
    """
    known = [*resources]
    if not any(each.op in (Op.SAME, Op.UPDATE) and not each.is_stack for each in known):
        return []
    found: dict[str, list[str]] = {}
    for each in known:
        for line in _lines(each):
            found.setdefault(line, []).append(_named(each))
    return [f"{line}: {', '.join(sorted(objects))}" for line, objects in sorted(found.items())]


def _lines(found: Resource) -> Iterator[str]:
    kind = found.label.partition(" ")[0].removesuffix("Patch")
    if kind not in _ACTS:
        return
    begins, ends = _ACTS[kind]
    before, after = (_acts(kind, inputs) for inputs in (found.before, found.inputs))
    before, after = before and found.op is not Op.CREATE, after and found.op is not Op.DELETE
    if before != after:
        yield begins if after else ends


def _acts(kind: str, inputs: Mapping[str, Any]) -> bool:
    if kind in _ALONE:
        return kind != "DaemonSet" or _name(inputs).startswith(names.GUARD)
    if kind == "ValidatingAdmissionPolicyBinding":
        return "Deny" in (inputs.get("spec") or {}).get("validationActions", ())
    if kind == "Namespace":
        return names.POD_SECURITY_ENFORCE in ((inputs.get("metadata") or {}).get("labels") or {})
    return any(each.get("name") == "DRY_RUN" and each.get("value") == "false" for each in _variables(inputs))


def _variables(inputs: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Any = inputs
    for key in ("spec", "jobTemplate", "spec", "template", "spec"):
        found = found.get(key) or {}
    return [variable for container in found.get("containers") or () for variable in container.get("env") or ()]


def _name(inputs: Mapping[str, Any]) -> str:
    return str((inputs.get("metadata") or {}).get("name", ""))


def _named(found: Resource) -> str:
    metadata = (found.inputs or found.before).get("metadata") or {}
    return str(metadata.get("namespace") if found.label.startswith("ResourceQuota ") else metadata.get("name"))
