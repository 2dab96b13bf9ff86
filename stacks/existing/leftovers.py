"""Finds what a killed run has left in the cluster, and clears it away before the next run.

A run writes its state only at its end. After a kill, the state lacks what the run created, and still has what it
changed or deleted. All that is applied server-side has the stack's own field manager, so the next rollout applies it
again. This module handles the rest (docs/adr/0044).
"""

import base64
import gzip
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from stacks.existing.lookup import Object, Reader, Writer, group_path, plurals
from stacks.existing.planned import RELEASE, RELEASE_TYPE, Identity, identity, is_patch_type, listed, owner
from stacks.retirement import retire
from tenancy import names

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
_OURS = f"{names.LABEL_PART_OF}={names.PROJECT}"
# The kinds of which a stack patches objects of other owners.
_PATCHED = ("Namespace", "PriorityClass")
KUEUES_DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterqueues.kueue.x-k8s.io"
_OF_HELM = "owner=helm,name=kueue"
# Pulumi's provider contains Helm. This is its name in the managed fields of what it writes.
_PROVIDER = "pulumi"
_INSTALLED = "deployed"
_UPGRADES = ("pending-upgrade", "pending-rollback")
_QUEUES, _ADMISSION = "kueue.x-k8s.io", "admissionregistration.k8s.io"
_OF_AGENTS = ("apps/v1", "batch/v1")


@dataclass(frozen=True)
class Leftovers:
    """What a killed run has left.

    `unknown` has the stack's objects that the state lacks, and `patched` the patched objects of other owners whose
    patch the state lacks. `stale` are the URNs of resources that differ from what the last complete run has seen, and
    `ending` the objects among them that are being deleted. `records` are Helm's records of Kueue, the last one first.
    `release` is the URN of Kueue, or empty if the state lacks Kueue. With `is_unrecorded`, Kueue is there without any
    record of Helm.
    """

    mark: str
    unknown: Mapping[Identity, Object]
    patched: Mapping[Identity, Object]
    stale: Sequence[str]
    ending: Sequence[Identity]
    records: Sequence[Object]
    release: str = ""
    is_unrecorded: bool = False

    def __bool__(self) -> bool:
        """Returns True if the state lacks something of the cluster."""
        return bool(self.unknown or self.patched or (self.records and not self.release))

    @property
    def namespaces(self) -> Iterator[str]:
        return (each.name for each in self.patched if each.kind == "Namespace")

    def orphans(self, declared: Collection[Identity]) -> list[Identity]:
        """Returns the objects that nothing declares any more, in the order of their removal."""
        return sorted((each for each in self.unknown if each.unversioned not in declared), key=_place)

    def again(self, declared: Collection[Identity]) -> list[Identity]:
        """Returns the PriorityClasses to delete before the rollout, because the provider cannot apply them again."""
        return [each for each in self.unknown if each.kind == "PriorityClass" and each.unversioned in declared]

    def is_chart_gone(self, declared: Collection[Identity]) -> bool:
        """Returns True if neither the state nor the program has the chart that Helm has installed."""
        return bool(self.records) and not self.release and not any(each.kind == RELEASE for each in declared)

    def lines(self, declared: Collection[Identity]) -> Iterator[str]:
        gone = [*map(str, self.orphans(declared))]
        if self.is_chart_gone(declared):
            gone.append("Release kueue")
        gone += [f"the patch of {each}" for each in self.patched if each.unversioned not in declared]
        if gone:
            yield f"removes what a run that ended before its time has left: {listed(gone)}"


def look(deployment: Mapping[str, Any], mark: str, reader: Reader) -> Leftovers:
    """Compares the state with the cluster. `mark` is the value of the stack's annotation.

    `deployment` is the data that `pulumi stack export` prints. The function raises the errors of the reader.
    """
    resources = [each for each in deployment["deployment"].get("resources") or [] if "inputs" in each]
    ours, patched = _of_the_stack(reader, mark)
    known, stale, ending = set[tuple[bool, Identity]](), [], []
    for resource in filter(_is_compared, resources):
        is_patch, key = is_patch_type(resource["type"]), identity(resource["inputs"]).unversioned
        known.add((is_patch, key))
        _, there = (patched if is_patch else ours).get(key, (None, {}))
        if "deletionTimestamp" in there.get("metadata", {}):
            ending.append(key)
        if _seen(resource.get("outputs") or {}, mark, is_patch) != _seen(there, mark, is_patch):
            stale.append(str(resource["urn"]))
    homes = {found.name for found, each in patched.values() if found.kind == "Namespace" and _is_for_kueue(each)}
    paths = [f"/api/v1/namespaces/{home}/secrets" for home in homes]
    secrets = [each for path in paths for each in reader.items(path, labelSelector=_OF_HELM)]
    records = sorted(filter(_is_own_record, secrets), key=_revision, reverse=True)
    releases = [each for each in resources if each["type"] == RELEASE_TYPE]
    stale += [str(each["urn"]) for each in releases if _last_seen(each) != [*map(_last, records[:1])]]
    return Leftovers(
        mark=mark,
        unknown={found: each for key, (found, each) in ours.items() if (False, key) not in known},
        patched={found: each for key, (found, each) in patched.items() if (True, key) not in known},
        stale=stale,
        ending=ending,
        records=records,
        release=str(releases[0]["urn"]) if releases else "",
        is_unrecorded=not secrets and _is_kueue_in(homes, reader.find(KUEUES_DEFINITION)),
    )


def clear(leftovers: Leftovers, cluster: Writer, declared: Collection[Identity]) -> None:
    """Removes what would stand in the way of the next run, and what nothing declares any more.

    First come the policies, then the queues while Kueue can let them go, then the agents with their pods, and then the
    ledger with the nodes' gpumem, on which an agent would still act. Raises EngineError.
    """
    orphans = leftovers.orphans(declared)
    for group in (_ADMISSION, _QUEUES):
        _delete(cluster, [each for each in orphans if each.api_version.startswith(group)])
    _delete(cluster, [each for each in orphans if each.api_version in _OF_AGENTS], "--cascade=foreground")
    for ledger in filter(_is_ledger, orphans):
        cluster.delete([_reference(ledger)], "--wait=false")
        for line in retire(cluster, ledger.namespace):
            print(line, flush=True)
    if leftovers.is_chart_gone(declared):
        cluster.delete(_of_the_chart(leftovers.records[0]))
    if leftovers.records and not leftovers.release:
        cluster.delete([_secret(each) for each in leftovers.records])
    _delete(cluster, [*leftovers.again(declared), *orphans])
    for each in leftovers.patched:
        if each.unversioned not in declared:
            cluster.give_back(_reference(each), names.field_manager(leftovers.mark))


def settle_release(leftovers: Leftovers, cluster: Writer) -> bool:
    """Ends an interrupted upgrade or removal of the Kueue in the state. Returns True if there was one.

    Helm would refuse to upgrade such a release. After an interrupted upgrade, Helm forgets the upgrade. An interrupted
    removal is completed. Raises EngineError.
    """
    if not leftovers.records or not leftovers.release or _status(leftovers.records[0]) == _INSTALLED:
        return False
    last, *_ = leftovers.records
    if _status(last) not in _UPGRADES:
        cluster.delete(_of_the_chart(last))
    cluster.delete([_secret(each) for each in ([last] if _status(last) in _UPGRADES else leftovers.records)])
    return True


_Found = dict[Identity, tuple[Identity, Object]]


def _of_the_stack(reader: Reader, mark: str) -> tuple[_Found, _Found]:
    """Returns the objects of the stack, and the objects of other owners that it patches. Skips what others own."""
    ours: _Found = {}
    patched: _Found = {}
    for api_version, kinds in KINDS.items():
        served = plurals(reader, api_version)
        for kind in filter(served.__contains__, kinds):
            only = {} if kind in _PATCHED else {"labelSelector": _OURS}
            for each in reader.items(f"{group_path(api_version)}/{served[kind]}", **only):
                found = identity({"apiVersion": api_version, "kind": kind, "metadata": each["metadata"]})
                if owner(each) == mark and _is_part(each):
                    ours[found.unversioned] = (found, each)
                elif kind in _PATCHED and _applied(each, names.field_manager(mark)):
                    patched[found.unversioned] = (found, each)
    return ours, patched


def _is_compared(resource: Mapping[str, Any]) -> bool:
    inputs, token = resource["inputs"], str(resource["type"])
    is_object = token.startswith("kubernetes:") and {"kind", "metadata"} <= inputs.keys()
    return is_object and (is_patch_type(token) or _is_part(inputs))


def _seen(found: Object, mark: str, is_patch: bool) -> tuple[object, object]:
    """Returns what differs if a run of the stack has created the object again, or has applied it again."""
    uid = found.get("metadata", {}).get("uid")
    applied = _applied(found, names.field_manager(mark))
    return (applied if is_patch else uid), applied


def _is_part(found: Object) -> bool:
    metadata = found["metadata"]
    is_ours = (metadata.get("labels") or {}).get(names.LABEL_PART_OF) == names.PROJECT
    return is_ours and "ownerReferences" not in metadata


def _applied(found: Object, manager: str) -> str | None:
    """Returns the time at which the field manager has last changed a field of the object."""
    fields = found.get("metadata", {}).get("managedFields") or ()
    return next((each.get("time") for each in fields if each.get("manager") == manager), None)


def _is_for_kueue(namespace: Object) -> bool:
    return (namespace["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT) == "kueue"


def _is_own_record(secret: Object) -> bool:
    """Returns True if Pulumi's provider has written Helm's record."""
    managers = (fields.get("manager", "") for fields in secret["metadata"].get("managedFields") or ())
    return any(name.startswith(_PROVIDER) for name in managers)


def _last_seen(release: Mapping[str, Any]) -> list[tuple[int, str]]:
    status = (release.get("outputs") or {}).get("status") or {}
    return [(int(status.get("revision", 0)), str(status.get("status")))]


def _last(record: Object) -> tuple[int, str]:
    return _revision(record), _status(record)


def _is_kueue_in(homes: Collection[str], definition: Object | None) -> bool:
    annotations = (definition or {"metadata": {}})["metadata"].get("annotations") or {}
    return annotations.get("meta.helm.sh/release-namespace") in homes


def _revision(record: Object) -> int:
    return int(record["metadata"]["labels"]["version"])


def _status(record: Object) -> str:
    return str(record["metadata"]["labels"]["status"])


def _of_the_chart(record: Object) -> list[Object]:
    """Returns the objects of the chart that Helm has installed, or was about to."""
    release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(record["data"]["release"]))))
    return [each for each in yaml.safe_load_all(release["manifest"]) if each]


def _delete(cluster: Writer, objects: Iterable[Identity], *flags: str) -> None:
    if found := [_reference(each) for each in objects]:
        cluster.delete(found, *flags)


def _reference(of: Identity) -> Object:
    namespace = {"namespace": of.namespace} if of.namespace else {}
    return {"apiVersion": of.api_version, "kind": of.kind, "metadata": {"name": of.name, **namespace}}


def _secret(record: Object) -> Object:
    metadata = record["metadata"]
    return _reference(Identity("Secret", metadata["namespace"], metadata["name"], "v1"))


def _is_ledger(of: Identity) -> bool:
    return (of.kind, of.name) == ("ConfigMap", names.LEDGER)


def _place(of: Identity) -> tuple[int, Identity]:
    kinds = [kind for each in KINDS.values() for kind in each]
    return kinds.index(of.kind), of
