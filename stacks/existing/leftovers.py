"""Finds what a killed run has left in the cluster, and clears it away before the next run.

A run writes its state only at its end. After a kill, the state lacks what the run created, and still has what it
changed or deleted. All that is applied server-side has the stack's own field manager, so the next rollout applies it
again. This module handles the rest (docs/adr/0044).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.kube.errors import Object
from stacks.cluster import Cluster
from stacks.existing.helm import Installation, installation
from stacks.existing.objects import (
    RELEASE_TYPE,
    Declared,
    Identity,
    in_state,
    listed,
    objects,
    owner,
)
from stacks.retirement import retire
from tenancy import names
from tenancy.workload import map_at, maps_at

# The kinds of the objects that a stack has ever created. Objects of a kind come before those of the kinds after it.
KINDS = {
    "admissionregistration.k8s.io/v1": (
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "MutatingAdmissionPolicy",
    ),
    "admissionregistration.k8s.io/v1beta1": ("MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"),
    "admissionregistration.k8s.io/v1alpha1": ("MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"),
    "kueue.x-k8s.io/v1beta2": (
        "LocalQueue",
        "ClusterQueue",
        "Cohort",
        "AdmissionCheck",
        "MultiKueueConfig",
        "MultiKueueCluster",
        "ProvisioningRequestConfig",
        "ResourceFlavor",
        "Topology",
        "WorkloadPriorityClass",
    ),
    "monitoring.coreos.com/v1": ("PodMonitor", "PrometheusRule", "ServiceMonitor"),
    "monitoring.coreos.com/v1alpha1": ("AlertmanagerConfig",),
    "apps/v1": ("DaemonSet", "Deployment"),
    "batch/v1": ("CronJob", "Job"),
    "networking.k8s.io/v1": ("NetworkPolicy",),
    "resource.k8s.io/v1": ("ResourceClaim",),
    "policy/v1": ("PodDisruptionBudget",),
    "rbac.authorization.k8s.io/v1": ("RoleBinding", "Role", "ClusterRoleBinding", "ClusterRole"),
    "scheduling.k8s.io/v1": ("PriorityClass",),
    "v1": ("Namespace", "ConfigMap", "ResourceQuota", "Service", "ServiceAccount"),
}
# The kinds of which a stack patches objects of other owners. Of all other kinds, only the stack's objects are read.
_PATCHED = ("Namespace", "PriorityClass")
_OURS = {
    kind: f"{names.LABEL_PART_OF}={names.PROJECT}" for each in KINDS.values() for kind in each if kind not in _PATCHED
}
_QUEUES, _ADMISSION = "kueue.x-k8s.io", "admissionregistration.k8s.io"
_OF_AGENTS = ("apps/v1", "batch/v1")

Key = tuple[bool, Identity]


@dataclass(frozen=True)
class Leftovers:
    """The difference between the state and the cluster.

    `state` has what the state has. `unknown` has what the state lacks: objects with the stack's mark, and patches of
    objects of other owners. `stale` are the URNs of resources that differ from what the last complete run has seen, and
    `ending` the objects among them that are being deleted.
    """

    mark: str
    state: Collection[Key]
    unknown: Mapping[Key, Identity]
    stale: Sequence[str]
    ending: Sequence[Identity]
    kueue: Installation

    def __bool__(self) -> bool:
        """Returns True if the state lacks something of the cluster."""
        return bool(self.unknown or self.kueue.is_unknown)

    @property
    def namespaces(self) -> list[str]:
        return [each.name for (is_patch, _), each in self.unknown.items() if is_patch and each.kind == "Namespace"]

    def orphans(self, declared: Collection[Declared], *, patches: bool = False) -> list[Identity]:
        """Returns the objects, or the patched objects, that nothing declares any more, in the order of their
        removal."""
        wanted = {each.key for each in declared}
        found = (each for key, each in self.unknown.items() if key[0] is patches and key not in wanted)
        return sorted(found, key=_place)

    def again(self, declared: Collection[Declared]) -> list[Identity]:
        """Returns the PriorityClasses to delete before the rollout, because the provider cannot apply them again."""
        classes = (self.unknown.get(each.key) for each in declared if not each.is_patch)
        return [each for each in classes if each is not None and each.kind == "PriorityClass"]

    def is_chart_gone(self, declared: Collection[Declared]) -> bool:
        """Returns True if neither the state nor the program has the chart that Helm has installed."""
        return self.kueue.is_unknown and not any(each.is_release for each in declared)

    def lines(self, declared: Collection[Declared]) -> Iterator[str]:
        gone = [*map(str, self.orphans(declared)), *(["Release kueue"] if self.is_chart_gone(declared) else [])]
        gone += [f"the patch of {each}" for each in self.orphans(declared, patches=True)]
        if gone:
            yield f"removes what a run that ended before its time has left: {listed(gone)}"


def look(deployment: Mapping[str, Any], mark: str, cluster: Cluster) -> Leftovers:
    """Compares the state with the cluster. `mark` is the value of the stack's annotation.

    `deployment` is the data that `pulumi stack export` prints. The function raises the errors of the cluster.
    """
    resources = deployment["deployment"].get("resources") or []
    there = _of_the_stack(cluster, mark)
    homes = [found.name for found, each in there.values() if found.kind == "Namespace" and _is_for_kueue(each)]
    urns = [str(each["urn"]) for each in resources if each["type"] == RELEASE_TYPE]
    kueue = installation(cluster, homes, "".join(urns[:1]))
    state, stale, ending = set[Key](), list[str](), list[Identity]()
    for resource, each in ((resource, in_state(resource)) for resource in resources):
        if each is None:
            continue
        state.add(each.key)
        if not (each.is_patch or each.is_release or _is_part(each.manifest)):
            continue
        outputs, found = resource.get("outputs") or {}, there.get(each.key, (None, {}))[1]
        if "deletionTimestamp" in found.get("metadata", {}):
            ending.append(each.identity)
        if each.is_release:
            is_stale = kueue.differs_from(outputs)
        else:
            is_stale = _seen(outputs, mark, each.is_patch) != _seen(found, mark, each.is_patch)
        stale += [str(resource["urn"])] if is_stale else []
    unknown = {key: found for key, (found, _) in there.items() if key not in state}
    return Leftovers(mark, state, unknown, stale, ending, kueue)


def clear(leftovers: Leftovers, cluster: Cluster, declared: Collection[Declared]) -> None:
    """Removes what would stand in the way of the next run, and what nothing declares any more.

    First come the policies, then the queues while Kueue can let them go, then the agents with their pods, and then the
    ledger with the nodes' gpumem, on which an agent would still act. Raises EngineError.
    """
    orphans = leftovers.orphans(declared)
    for group in (_ADMISSION, _QUEUES):
        _delete(cluster, [each for each in orphans if each.api_version.startswith(group)])
    _delete(cluster, [each for each in orphans if each.api_version in _OF_AGENTS], "--cascade=foreground")
    for ledger in filter(_is_ledger, orphans):
        cluster.delete([ledger.manifest], "--wait=false")
        for line in retire(cluster, ledger.namespace):
            print(line, flush=True)
    if leftovers.is_chart_gone(declared):
        leftovers.kueue.remove_the_chart(cluster)
    if leftovers.kueue.is_unknown:
        leftovers.kueue.forget(cluster, leftovers.kueue.records)
    _delete(cluster, [*leftovers.again(declared), *orphans])
    for each in leftovers.orphans(declared, patches=True):
        cluster.give_back(each.manifest, names.field_manager(leftovers.mark))


def _of_the_stack(cluster: Cluster, mark: str) -> dict[Key, tuple[Identity, Object]]:
    """Returns the objects of the stack, and the objects of other owners that it patches. Skips what others own."""
    found = {}
    for of, each in objects(cluster, KINDS, _OURS):
        is_ours = owner(each) == mark and _is_part(each) and of.kind != "Namespace"  # No stack owns a namespace.
        if is_ours or (of.kind in _PATCHED and _applied(each, mark)):
            found[not is_ours, of.unversioned] = (of, each)
    return found


def _seen(found: Object, mark: str, is_patch: bool) -> tuple[object, object]:
    """Returns what differs if a run of the stack has created the object again, or has applied it again."""
    return None if is_patch else map_at(found, "metadata").get("uid"), _applied(found, mark)


def _is_part(found: Object) -> bool:
    metadata = found["metadata"]
    is_ours = map_at(metadata, "labels").get(names.LABEL_PART_OF) == names.PROJECT
    return is_ours and "ownerReferences" not in metadata


def _applied(found: Object, mark: str) -> str | None:
    """Returns the time at which the stack's field manager has last changed a field of the object."""
    fields, manager = maps_at(map_at(found, "metadata"), "managedFields"), names.field_manager(mark)
    return next((each.get("time") for each in fields if each.get("manager") == manager), None)


def _is_for_kueue(namespace: Object) -> bool:
    return map_at(namespace, "metadata", "labels").get(names.LABEL_COMPONENT) == "kueue"


def _delete(cluster: Cluster, found: Iterable[Identity], *flags: str) -> None:
    if manifests := [each.manifest for each in found]:
        cluster.delete(manifests, *flags)


def _is_ledger(of: Identity) -> bool:
    return (of.kind, of.name) == ("ConfigMap", names.LEDGER)


def _place(of: Identity) -> tuple[int, Identity]:
    kinds = [kind for each in KINDS.values() for kind in each]
    return kinds.index(of.kind), of
