"""Lists the contents of the namespaces that a rollout or a removal deletes. Refuses a rollout or a removal that would
delete volumes without the operator's explicit consent.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stacks.existing.lookup import Object, Reader
from stacks.problems import key
from tenancy import names
from tenancy.workload import map_at, maps_at

NAMESPACE_TYPE = "kubernetes:core/v1:Namespace"
_PATCH_TYPE, _CONFIG_MAP_TYPE = f"{NAMESPACE_TYPE}Patch", "kubernetes:core/v1:ConfigMap"
_LOCAL_QUEUE = ":LocalQueue"
_SHOWN = 5


@dataclass(frozen=True)
class StackNamespace:
    """A namespace of the stack.

    `is_explicit` is True if the stack file has `delete: true` for the tenant. If an earlier version of this project
    wrote the state, `is_old` is True, and Pulumi does not protect the namespace from deletion.
    """

    name: str
    is_explicit: bool
    is_old: bool


@dataclass(frozen=True)
class Contents:
    """The names of the PersistentVolumeClaims and of the running pods in a namespace."""

    claims: Sequence[str] = ()
    pods: Sequence[str] = ()

    def __str__(self) -> str:
        return f"{_counted('PersistentVolumeClaim', self.claims)}, {_counted('running pod', self.pods)}"


@dataclass(frozen=True)
class Removal:
    """The namespaces that a rollout or a removal deletes, with their contents.

    `kept` has the namespaces that stay in the cluster. `patched` has the namespaces that other owners created. A
    rollout removes the stack's labels from the `patched` namespaces. `waiting` has the Workloads (as namespace/name) of
    the deleted queues. `asking` has the pods that request `resource`. After the removal, no node offers `resource`.
    """

    gone: Mapping[StackNamespace, Contents]
    kept: Sequence[str] = ()
    waiting: Sequence[str] = ()
    patched: Sequence[str] = ()
    asking: Sequence[str] = ()
    resource: str = ""

    def lines(self) -> Iterator[str]:
        """Yields one message for each deleted namespace, and messages about the namespaces that stay in the cluster."""
        for home, contents in self.gone.items():
            yield f"deletes namespace {home.name} with {contents}"
        if self.kept:
            yield f"keeps namespaces {', '.join(self.kept)}"
        if self.patched:
            yield f"leaves namespaces {', '.join(self.patched)}, and removes its labels from them"
        if self.asking:
            yield (
                f"leaves {_counted('pod', self.asking)} with a limit of {self.resource}, which no node offers after "
                "this: a pod keeps running, but its next pod would wait; then remove the limit from its workload"
            )

    def problems(self) -> Iterator[str]:
        """Yields the reasons to refuse the rollout or the removal."""
        for home, contents in self.gone.items():
            if contents.claims and home.is_old:
                yield (
                    f"namespace {home.name} has {_counted('PersistentVolumeClaim', contents.claims)}, and an earlier "
                    "release wrote the state; run make up first, so that the namespaces of tenants stay"
                )
            elif contents.claims and not home.is_explicit:
                yield (
                    f"namespace {home.name} has {_counted('PersistentVolumeClaim', contents.claims)} of somebody "
                    "else; move or delete them first"
                )
        if self.waiting:
            yield (
                f"Kueue's queues go, and {_counted('Workload', self.waiting)} would keep them from it; let their Jobs "
                f"end, delete these Jobs, or write delete: true under {key('tenants')} and run make up"
            )


def home(manifest: Mapping[str, Any]) -> StackNamespace:
    """Returns the namespace that a manifest in the state describes."""
    metadata = manifest["metadata"]
    is_marked = names.STACK in (metadata.get("annotations") or {})
    is_a_tenants = (metadata.get("labels") or {}).get(names.LABEL_COMPONENT) == "tenant"
    return StackNamespace(str(metadata["name"]), is_marked and is_a_tenants, not is_marked)


def of_state(deployment: Mapping[str, Any], reader: Reader) -> Removal:
    """Returns the removal of a whole stack.

    `deployment` is the data that `pulumi stack export` prints. The function raises the errors of the reader.
    """
    resources = deployment["deployment"].get("resources") or []
    declared = [each for each in resources if each["type"] == NAMESPACE_TYPE and not each.get("delete")]
    gone = [home(each["inputs"]) for each in declared if not each.get("retainOnDelete")]
    kept = sorted(str(each["inputs"]["metadata"]["name"]) for each in declared if each.get("retainOnDelete"))
    queues = [each["inputs"] for each in resources if str(each["type"]).endswith(_LOCAL_QUEUE)]
    patched = [each["inputs"]["metadata"] for each in resources if each["type"] == _PATCH_TYPE]
    leaving = {each.name for each in gone}
    ledger = _ledger(resources)
    resource = _gpumem(ledger) if ledger else ""
    return Removal(
        {each: contents(reader, each.name) for each in gone},
        kept,
        sorted(_waiting(reader, queues, leaving)),
        patched=sorted(str(each["name"]) for each in patched),
        asking=sorted(_asking(reader, resource, leaving)) if resource else (),
        resource=resource,
    )


def retiring_namespace(deployment: Mapping[str, Any]) -> str | None:
    """Returns the namespace of the ledger if its removal waits until the nodes no longer advertise its gpumem."""
    ledger = _ledger(deployment["deployment"].get("resources") or [])
    return str(ledger["metadata"]["namespace"]) if ledger and ledger["metadata"].get("finalizers") else None


def contents(reader: Reader, namespace: str) -> Contents:
    """Returns the PersistentVolumeClaims and the running pods in a namespace."""
    path = f"/api/v1/namespaces/{namespace}"
    claims = reader.items(f"{path}/persistentvolumeclaims")
    pods = reader.items(f"{path}/pods", fieldSelector="status.phase=Running")
    return Contents(sorted(map(_name, claims)), sorted(map(_name, pods)))


def _waiting(reader: Reader, queues: Iterable[Mapping[str, Any]], gone: set[str]) -> Iterator[str]:
    ours = {(each["metadata"]["namespace"], each["metadata"]["name"]): each["apiVersion"] for each in queues}
    for api_version in sorted(set(ours.values())):
        for workload in reader.items(f"/apis/{api_version}/workloads"):
            namespace = workload["metadata"]["namespace"]
            queue = (namespace, workload["spec"].get("queueName"))
            if queue in ours and namespace not in gone and not _is_finished(workload):
                yield f"{namespace}/{_name(workload)}"


def _ledger(resources: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    maps = (each["inputs"] for each in resources if each["type"] == _CONFIG_MAP_TYPE and "inputs" in each)
    return next((each for each in maps if each["metadata"].get("name") == names.LEDGER), None)


def _gpumem(ledger: Mapping[str, Any]) -> str:
    return names.Names(str(json.loads(ledger["data"][names.LEDGER_KEY])["domain"])).gpumem


def _asking(reader: Reader, resource: str, gone: set[str]) -> Iterator[str]:
    """Yields the running pods that request the resource, in namespaces that stay."""
    for pod in reader.items("/api/v1/pods", fieldSelector="status.phase=Running"):
        limits = [map_at(each, "resources", "limits") for each in maps_at(pod["spec"], "containers")]
        if pod["metadata"]["namespace"] not in gone and any(resource in each for each in limits):
            yield f"{pod['metadata']['namespace']}/{_name(pod)}"


def _is_finished(workload: Object) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Finished" and each["status"] == "True" for each in conditions)


def _name(found: Object) -> str:
    return str(found["metadata"]["name"])


def _counted(noun: str, found: Sequence[str]) -> str:
    if not found:
        return f"no {noun}s"
    shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    return f"{len(found)} {noun}{'s' if len(found) > 1 else ''} ({shown})"
