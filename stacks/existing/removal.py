"""Lists what a removal leaves: namespaces, and pods that ask for what no node will offer. Refuses a removal that could
not end.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from agents.kube.errors import Object
from stacks.cluster import Cluster
from stacks.existing.check import Verdict
from stacks.existing.objects import Declared, group_path, in_state, listed, resources
from tenancy import names
from tenancy.workload import condition, map_at, maps_at

# What Kubernetes itself puts into each namespace, or forgets after some time.
_OF_EACH_NAMESPACE = {"ConfigMap": "kube-root-ca.crt", "ServiceAccount": "default"}
_PASSING = ("Event", "Lease")


def of_state(deployment: Mapping[str, Any], cluster: Cluster) -> Verdict:
    """Judges the removal of a whole stack.

    `deployment` is the data that `pulumi stack export` prints. The function raises the errors of the cluster.
    """
    notes = list[str]()
    if patched := patched_namespaces(deployment):
        notes.append(f"leaves namespaces {', '.join(patched)}, and removes its labels from them")
    if (ledger := _ledger(deployment)) is not None:
        resource = names.Names(str(json.loads(ledger["data"][names.LEDGER_KEY])["domain"])).gpumem
        if asking := sorted(_asking(cluster, resource)):
            notes.append(
                f"leaves {_counted('pod', asking)} with a limit of {resource}, which no node offers after this: a "
                "pod keeps running, but its next pod would wait; then remove the limit from its workload"
            )
    if retiring_namespace(deployment):
        notes.append("removes its gpumem from the nodes by reconcile, or itself if no agent runs")
    waiting = sorted(_waiting(cluster, _objects(deployment)))
    problem = (
        f"Kueue's queues go, and {_counted('Workload', waiting)} would keep them from it; let their Jobs "
        "end, or delete these Jobs"
    )
    return Verdict((problem,) if waiting else (), tuple(notes))


def patched_namespaces(deployment: Mapping[str, Any]) -> list[str]:
    """Returns the names of the namespaces that the stack labels, sorted by name."""
    identities = (each.identity for each in _objects(deployment) if each.is_patch)
    return sorted({each.name for each in identities if each.kind == "Namespace"} - {names.EXEMPT_BY_NAME})


def retiring_namespace(deployment: Mapping[str, Any]) -> str | None:
    """Returns the namespace of the ledger if its removal waits until the nodes no longer advertise its gpumem."""
    metadata = map_at(_ledger(deployment) or {}, "metadata")
    return str(metadata["namespace"]) if metadata.get("finalizers") else None


def empty(cluster: Cluster, namespaces: Collection[str]) -> list[str]:
    """Returns those of the namespaces that have no object but Kubernetes' own. Raises the errors of the cluster."""
    there = {_name(each) for each in cluster.items("/api/v1/namespaces")}
    found = [each for each in namespaces if each in there]
    groups = (cluster.find("/apis") or {}).get("groups") or ()
    for api_version in ("v1", *(each["preferredVersion"]["groupVersion"] for each in groups)):
        for kind in resources(cluster, api_version):
            if found and kind["namespaced"] and "list" in kind["verbs"] and kind["kind"] not in _PASSING:
                own = _OF_EACH_NAMESPACE.get(kind["kind"])
                items = cluster.items(f"{group_path(api_version)}/{kind['name']}")
                used = {each["metadata"]["namespace"] for each in items if _name(each) != own}
                found = [each for each in found if each not in used]
    return found


def _objects(deployment: Mapping[str, Any]) -> list[Declared]:
    found = map(in_state, deployment["deployment"].get("resources") or ())
    return [each for each in found if each is not None]


def _ledger(deployment: Mapping[str, Any]) -> Object | None:
    objects = ((each.identity, each.manifest) for each in _objects(deployment))
    return next((each for of, each in objects if (of.kind, of.name) == ("ConfigMap", names.LEDGER)), None)


def _waiting(cluster: Cluster, objects: Iterable[Declared]) -> Iterator[str]:
    """Yields the unfinished Workloads of the stack's queues."""
    queues = [each.identity for each in objects if each.identity.kind == "LocalQueue"]
    ours = {(each.namespace, each.name) for each in queues}
    for api_version in sorted({each.api_version for each in queues}):
        for workload in cluster.items(f"/apis/{api_version}/workloads"):
            namespace = workload["metadata"]["namespace"]
            is_finished = condition(workload, "Finished").get("status") == "True"
            if (namespace, workload["spec"].get("queueName")) in ours and not is_finished:
                yield f"{namespace}/{_name(workload)}"


def _asking(cluster: Cluster, resource: str) -> Iterator[str]:
    """Yields the running pods that request the resource."""
    for pod in cluster.items("/api/v1/pods", fieldSelector="status.phase=Running"):
        if any(resource in map_at(each, "resources", "limits") for each in maps_at(pod, "spec", "containers")):
            yield f"{pod['metadata']['namespace']}/{_name(pod)}"


def _counted(noun: str, found: Collection[str]) -> str:
    return f"{len(found)} {noun}{'s' if len(found) > 1 else ''} ({listed(found)})"


def _name(found: Object) -> str:
    return str(found["metadata"]["name"])
