"""Lists what a removal leaves: namespaces, and pods that ask for what no node will offer. Refuses a removal that could
not end.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stacks.existing.lookup import Object, Reader, group_path, namespaced
from tenancy import names
from tenancy.workload import map_at, maps_at

_CONFIG_MAP_TYPE = "kubernetes:core/v1:ConfigMap"
_LOCAL_QUEUE = ":LocalQueue"
_SHOWN = 5
# What Kubernetes itself puts into each namespace, or forgets after some time.
_OF_EACH_NAMESPACE = (("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default"))
_PASSING = ("Event", "Lease")


@dataclass(frozen=True)
class Removal:
    """What the removal of a stack leaves.

    From the namespaces in `patched`, it removes the stack's labels. `waiting` has the Workloads (as namespace/name) of
    the deleted queues. `asking` has the pods that request `resource`, which no node offers after the removal.
    """

    waiting: Sequence[str] = ()
    patched: Sequence[str] = ()
    asking: Sequence[str] = ()
    resource: str = ""

    def lines(self) -> Iterator[str]:
        """Yields messages about what stays in the cluster."""
        if self.patched:
            yield f"leaves namespaces {', '.join(self.patched)}, and removes its labels from them"
        if self.asking:
            yield (
                f"leaves {_counted('pod', self.asking)} with a limit of {self.resource}, which no node offers after "
                "this: a pod keeps running, but its next pod would wait; then remove the limit from its workload"
            )

    def problems(self) -> Iterator[str]:
        """Yields the reasons to refuse the removal."""
        if self.waiting:
            yield (
                f"Kueue's queues go, and {_counted('Workload', self.waiting)} would keep them from it; let their Jobs "
                "end, or delete these Jobs"
            )


def of_state(deployment: Mapping[str, Any], reader: Reader) -> Removal:
    """Returns the removal of a whole stack.

    `deployment` is the data that `pulumi stack export` prints. The function raises the errors of the reader.
    """
    resources = deployment["deployment"].get("resources") or []
    queues = [each["inputs"] for each in resources if str(each["type"]).endswith(_LOCAL_QUEUE)]
    ledger = _ledger(resources)
    resource = _gpumem(ledger) if ledger else ""
    return Removal(
        waiting=sorted(_waiting(reader, queues)),
        patched=patched_namespaces(deployment),
        asking=sorted(_asking(reader, resource)) if resource else (),
        resource=resource,
    )


def patched_namespaces(deployment: Mapping[str, Any]) -> list[str]:
    """Returns the names of the namespaces that the stack labels, sorted by name."""
    resources = deployment["deployment"].get("resources") or []
    patched = {str(each["inputs"]["metadata"]["name"]) for each in resources if each["type"] == names.CLUSTER_TYPE}
    return sorted(patched - {names.EXEMPT_BY_NAME})


def empty(reader: Reader, namespaces: Collection[str]) -> list[str]:
    """Returns those of the namespaces that have no object but Kubernetes' own. Raises the errors of the reader."""
    there = {_name(each) for each in reader.items("/api/v1/namespaces")}
    found = [each for each in namespaces if each in there]
    groups = (reader.find("/apis") or {}).get("groups") or ()
    for api_version in ("v1", *(each["preferredVersion"]["groupVersion"] for each in groups)):
        for kind, plural in namespaced(reader, api_version).items():
            if not found:
                return []
            if kind not in _PASSING:
                own = (each for each in _OF_EACH_NAMESPACE if each[0] == kind)
                used = _homes(reader.items(f"{group_path(api_version)}/{plural}"), {name for _, name in own})
                found = [each for each in found if each not in used]
    return found


def retiring_namespace(deployment: Mapping[str, Any]) -> str | None:
    """Returns the namespace of the ledger if its removal waits until the nodes no longer advertise its gpumem."""
    ledger = _ledger(deployment["deployment"].get("resources") or [])
    return str(ledger["metadata"]["namespace"]) if ledger and ledger["metadata"].get("finalizers") else None


def _homes(objects: Iterable[Object], but: Collection[str]) -> set[str]:
    return {each["metadata"]["namespace"] for each in objects if _name(each) not in but}


def _waiting(reader: Reader, queues: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    ours = {(each["metadata"]["namespace"], each["metadata"]["name"]): each["apiVersion"] for each in queues}
    for api_version in sorted(set(ours.values())):
        for workload in reader.items(f"/apis/{api_version}/workloads"):
            namespace = workload["metadata"]["namespace"]
            queue = (namespace, workload["spec"].get("queueName"))
            if queue in ours and not _is_finished(workload):
                yield f"{namespace}/{_name(workload)}"


def _ledger(resources: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    maps = (each["inputs"] for each in resources if each["type"] == _CONFIG_MAP_TYPE and "inputs" in each)
    return next((each for each in maps if each["metadata"].get("name") == names.LEDGER), None)


def _gpumem(ledger: Mapping[str, Any]) -> str:
    return names.Names(str(json.loads(ledger["data"][names.LEDGER_KEY])["domain"])).gpumem


def _asking(reader: Reader, resource: str) -> Iterator[str]:
    """Yields the running pods that request the resource."""
    for pod in reader.items("/api/v1/pods", fieldSelector="status.phase=Running"):
        limits = [map_at(each, "resources", "limits") for each in maps_at(pod["spec"], "containers")]
        if any(resource in each for each in limits):
            yield f"{pod['metadata']['namespace']}/{_name(pod)}"


def _is_finished(workload: Object) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Finished" and each["status"] == "True" for each in conditions)


def _name(found: Object) -> str:
    return str(found["metadata"]["name"])


def _counted(noun: str, found: Sequence[str]) -> str:
    shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    return f"{len(found)} {noun}{'s' if len(found) > 1 else ''} ({shown})"
