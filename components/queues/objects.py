"""Makes the manifests of Kueue's objects. Maps are sorted by name, because the engine does not keep their order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from components.base.manifest import Manifest, description_field, manifest
from components.queues.nodes import FlavorSpec, ProvisioningSpec, TopologySpec
from components.queues.quotas import Quotas, QuotaSpec
from components.queues.spec import (
    ClusterQueueSpec,
    CohortSpec,
    FairSharingSpec,
    LocalQueueSpec,
    WorkloadPrioritySpec,
)
from tenancy.names import KUEUE_API, KUEUE_GROUP, LABEL_NAMESPACE, multi_kueue_check
from tenancy.quantity import canonical_text

PROVISIONING_CONTROLLER = f"{KUEUE_GROUP}/provisioning-request"
# Kueue's default preempts no Job.
_PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Never"}


def flavor(name: str, spec: FlavorSpec, node_selector: Mapping[str, str]) -> Manifest:
    """Returns the ResourceFlavor. Kueue adds the flavor's labels and tolerations to the pods of admitted Jobs, so that
    these pods run on the nodes of the pool."""
    passed = spec.passed()
    passed["nodeLabels"] = {**node_selector, **passed.get("nodeLabels", {})}
    passed["tolerations"] = [_complete(toleration) for toleration in passed.get("tolerations", ())]
    return _kueue("ResourceFlavor", name, spec=_given(**passed, topologyName=spec.topology_name))


def _complete(toleration: Mapping[str, str]) -> dict[str, str]:
    """Returns the toleration with our defaults. Kueue's defaults would be every effect and an empty value."""
    operator = "Equal" if "value" in toleration else "Exists"
    return {"operator": operator, "effect": "NoSchedule", **toleration}


def topology(name: str, spec: TopologySpec) -> Manifest:
    return _kueue("Topology", name, spec={"levels": [{"nodeLabel": label} for label in spec.levels]})


def cohort(name: str, spec: CohortSpec) -> Manifest:
    """Returns a Cohort. The ClusterQueues and child cohorts of a Cohort lend each other idle quota."""
    body = _given(parentName=spec.parent_name, fairSharing=_fair_sharing(spec.fair_sharing))
    return _kueue("Cohort", name, spec=body | _resource_groups(spec.quotas, borrows=spec.parent_name is not None))


def cluster_queue(name: str, spec: ClusterQueueSpec, tenants: Iterable[str]) -> Manifest:
    """Returns the ClusterQueue, which is open to `tenants` only.

    The namespaceSelector selects the tenants' namespaces by the label that Kubernetes sets on each namespace. A null
    namespaceSelector would admit no namespace, and {} would admit every namespace.
    """
    passed = spec.passed()
    body: dict[str, Any] = {
        "queueingStrategy": "BestEffortFIFO",
        "namespaceSelector": {"matchExpressions": [_is_one_of(sorted(tenants))]},
        **_resource_groups(spec.quotas, borrows=spec.cohort is not None),
        **_given(cohortName=spec.cohort, fairSharing=_fair_sharing(spec.fair_sharing)),
        **passed,
        "preemption": {**_PREEMPTION, **passed.get("preemption", {})},
    }
    checks = [{"name": each.name, **_given(onFlavors=each.on_flavors)} for each in spec.admission_checks]
    checks += [{"name": multi_kueue_check(name)}] if spec.clusters else []
    if checks:
        body["admissionChecksStrategy"] = {"admissionChecks": checks}
    return _kueue("ClusterQueue", name, spec=body)


def _given(**fields: Any) -> dict[str, Any]:
    """Returns the fields without None and without empty values."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}


def _is_one_of(tenants: Sequence[str]) -> dict[str, Any]:
    """Returns the selector's expression. `In` needs at least one value. For an empty list of tenants, `DoesNotExist`
    selects no namespace, because every namespace has the label.
    """
    if not tenants:
        return {"key": LABEL_NAMESPACE, "operator": "DoesNotExist"}
    return {"key": LABEL_NAMESPACE, "operator": "In", "values": list(tenants)}


def _fair_sharing(spec: FairSharingSpec | None) -> dict[str, str] | None:
    return None if spec is None else {"weight": canonical_text(spec.weight)}


def _resource_groups(quotas: Quotas, *, borrows: bool) -> dict[str, Any]:
    """Returns the resource groups: flavors with the same resources form one group. Kueue tries the flavors of a group
    in the order of their names."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(quotas):
        groups.setdefault(tuple(sorted(quotas[name])), []).append(name)
    made = [
        {
            "coveredResources": list(resources),
            "flavors": [
                {"name": name, "resources": [_quota(each, quotas[name][each], borrows=borrows) for each in resources]}
                for name in names
            ],
        }
        for resources, names in groups.items()
    ]
    return {"resourceGroups": made} if made else {}


def _quota(resource: str, spec: QuotaSpec, *, borrows: bool) -> dict[str, str]:
    """Returns the quota of a resource. If the queue may borrow, the quota always gets a borrowing limit. Kueue's
    default borrowing limit is no limit.
    """
    borrowing = 0 if borrows and spec.borrowing_limit is None else spec.borrowing_limit
    limits = {"borrowingLimit": borrowing, "lendingLimit": spec.lending_limit}
    given = {key: canonical_text(amount) for key, amount in limits.items() if amount is not None}
    return {"name": resource, "nominalQuota": canonical_text(spec.nominal), **given}


def local_queue(name: str, spec: LocalQueueSpec) -> Manifest:
    body = {"clusterQueue": spec.cluster_queue, **_given(fairSharing=_fair_sharing(spec.fair_sharing)), **spec.passed()}
    return _kueue("LocalQueue", spec.name or name, spec.tenant, spec=body)


def admission_check(name: str) -> Manifest:
    """Returns an AdmissionCheck that the cluster autoscaler answers.

    The AdmissionCheck uses the ProvisioningRequestConfig with the same name.
    """
    parameters = {"apiGroup": KUEUE_GROUP, "kind": "ProvisioningRequestConfig", "name": name}
    return _kueue("AdmissionCheck", name, spec={"controllerName": PROVISIONING_CONTROLLER, "parameters": parameters})


def provisioning_request_config(name: str, spec: ProvisioningSpec) -> Manifest:
    return _kueue("ProvisioningRequestConfig", name, spec=spec.passed())


def workload_priority_class(name: str, spec: WorkloadPrioritySpec) -> Manifest:
    return _kueue("WorkloadPriorityClass", name, value=spec.value, **description_field(spec.description))


def _kueue(kind: str, name: str, namespace: str | None = None, **body: object) -> Manifest:
    return manifest(KUEUE_API, kind, name, "queues", namespace, **body)
