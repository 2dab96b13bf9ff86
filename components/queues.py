"""Queues: Kueue's flavors, ClusterQueues, LocalQueues and WorkloadPriorityClasses (record 0002)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pulumi
from pydantic import Field, ValidationInfo, field_validator

from components.base.manifest import Manifest, component_type, register
from components.base.spec import DnsLabel, LabelKey, LabelValue, PriorityValue, ResourceName, Spec, TolerationSpec
from tenancy.names import KUEUE_API, LABEL_NAMESPACE, labels
from tenancy.quantity import canonical

_COMPONENT = "queues"


class FlavorSpec(Spec):
    """A ResourceFlavor and the pool whose devices it stands for."""

    pool: DnsLabel
    node_labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=8)
    tolerations: list[TolerationSpec] = Field(default_factory=list, max_length=8)


class QuotaSpec(Spec):
    """What a ClusterQueue may hand out of one resource of one flavor."""

    nominal: Annotated[int, Field(ge=0)] = Field(description="The queue's own.")
    borrowing_limit: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="The most it takes of what others in its cohort leave idle; default: nothing."
    )
    lending_limit: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="The most of its own that others in its cohort may take; default: all of it."
    )

    @field_validator("lending_limit")
    @classmethod
    def _is_within_nominal(cls, lending_limit: int | None, info: ValidationInfo) -> int | None:
        nominal = info.data.get("nominal")
        if lending_limit is not None and nominal is not None and lending_limit > nominal:
            raise ValueError(f"must be at most nominal {nominal} (got {lending_limit})")
        return lending_limit


Quotas = dict[DnsLabel, dict[ResourceName, QuotaSpec]]


class PreemptionSpec(Spec):
    """ClusterQueue preemption, https://kueue.sigs.k8s.io/docs/concepts/preemption/"""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "LowerPriority"
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"


class ClusterQueueSpec(Spec):
    """A ClusterQueue: its quotas by flavor, and how it shares them."""

    quotas: Quotas = Field(min_length=1, description="Key of flavors to resource to quota.")
    flavor_order: list[DnsLabel] | None = Field(
        default=None, description="The flavors in the order in which Kueue tries them; default: by name."
    )
    cohort: DnsLabel | None = Field(
        default=None,
        validate_default=True,
        description="Queues that lend each other what is idle. Kueue's cohorts are the cluster's: other stacks' queues "
        "may be in it.",
    )
    strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    preemption: PreemptionSpec = PreemptionSpec()

    @field_validator("quotas")
    @classmethod
    def _are_one_resource_group(cls, quotas: Quotas) -> Quotas:
        covered = [resources.keys() for resources in quotas.values()]
        if not covered[0] or any(resources != covered[0] for resources in covered):
            raise ValueError("every flavor must list the same resources, at least one")
        return quotas

    @field_validator("flavor_order")
    @classmethod
    def _names_every_flavor_once(cls, order: list[str] | None, info: ValidationInfo) -> list[str] | None:
        quotas: Quotas | None = info.data.get("quotas")
        if order is not None and quotas is not None and sorted(order) != sorted(quotas):
            raise ValueError(f"must name each flavor of quotas once: {', '.join(sorted(quotas))}")
        return order

    @field_validator("cohort")
    @classmethod
    def _is_there_to_borrow_from(cls, cohort: str | None, info: ValidationInfo) -> str | None:
        quotas: Quotas = info.data.get("quotas", {})
        limits = [(q.borrowing_limit, q.lending_limit) for resources in quotas.values() for q in resources.values()]
        if cohort is None and any(limit != (None, None) for limit in limits):
            raise ValueError(
                "is missing though a quota has a borrowing_limit or lending_limit; name one or remove them"
            )
        return cohort


class LocalQueueSpec(Spec):
    """A LocalQueue: a tenant's door to a ClusterQueue."""

    tenant: DnsLabel
    cluster_queue: DnsLabel


class WorkloadPrioritySpec(Spec):
    """A WorkloadPriorityClass: the order among queued Jobs."""

    value: PriorityValue
    description: str = ""


class QueuesSpec(Spec):
    """Kueue's objects. A queue tenant has no seats: its Jobs wait for what the ClusterQueue may hand out."""

    flavors: dict[DnsLabel, FlavorSpec] = Field(min_length=1)
    cluster_queues: dict[DnsLabel, ClusterQueueSpec] = Field(min_length=1)
    local_queues: dict[DnsLabel, LocalQueueSpec] = Field(min_length=1)
    workload_priorities: dict[DnsLabel, WorkloadPrioritySpec] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LocalQueuesArgs:
    """`tenants` are what declares the namespaces of the LocalQueues, by tenant."""

    spec: QueuesSpec
    tenants: Mapping[str, pulumi.Resource]


def flavor(name: str, spec: FlavorSpec) -> Manifest:
    """The ResourceFlavor. Kueue adds its labels as nodeSelector, and its tolerations, to the pods of admitted Jobs."""
    body: dict[str, Any] = {}
    if spec.node_labels:
        body["nodeLabels"] = dict(spec.node_labels)
    if spec.tolerations:
        body["tolerations"] = [toleration.declared for toleration in spec.tolerations]
    return _kueue("ResourceFlavor", name, spec=body)


def cohort(name: str) -> Manifest:
    """The Cohort without quota of its own: ClusterQueues that name it lend each other theirs."""
    return _kueue("Cohort", name, spec={})


def cluster_queue(name: str, spec: ClusterQueueSpec, tenants: Iterable[str]) -> Manifest:
    """The ClusterQueue: one resource group, open to `tenants` only.

    The namespaceSelector goes by the label that Kubernetes sets itself; null would admit nobody, {} everybody.
    """
    body: dict[str, Any] = {
        "queueingStrategy": spec.strategy,
        "namespaceSelector": {"matchExpressions": [_is_one_of(sorted(tenants))]},
        "preemption": {
            "withinClusterQueue": spec.preemption.within_cluster_queue,
            "reclaimWithinCohort": spec.preemption.reclaim_within_cohort,
        },
        "resourceGroups": [_resource_group(spec)],
    }
    if spec.cohort is not None:
        body["cohortName"] = spec.cohort
    if len(spec.quotas) > 1:
        body["flavorFungibility"] = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
    return _kueue("ClusterQueue", name, spec=body)


def _is_one_of(tenants: Sequence[str]) -> dict[str, Any]:
    """In needs a value; every namespace has the label, so its absence selects none."""
    if not tenants:
        return {"key": LABEL_NAMESPACE, "operator": "DoesNotExist"}
    return {"key": LABEL_NAMESPACE, "operator": "In", "values": list(tenants)}


def _resource_group(spec: ClusterQueueSpec) -> dict[str, Any]:
    """Maps have no order once the engine has read them: that of the flavors is said apart, resources go by name."""
    order = spec.flavor_order or sorted(spec.quotas)
    return {
        "coveredResources": sorted(spec.quotas[order[0]]),
        "flavors": [
            {"name": name, "resources": [_quota(spec, *quota) for quota in sorted(spec.quotas[name].items())]}
            for name in order
        ],
    }


def _quota(queue: ClusterQueueSpec, resource: str, spec: QuotaSpec) -> dict[str, str]:
    """In a cohort Kueue takes no borrowing limit for any amount, which no ledger could hold: it is always said."""
    borrowing = (spec.borrowing_limit or 0) if queue.cohort is not None else None
    limits = {"borrowingLimit": borrowing, "lendingLimit": spec.lending_limit}
    given = {key: canonical(amount) for key, amount in limits.items() if amount is not None}
    return {"name": resource, "nominalQuota": canonical(spec.nominal), **given}


def local_queue(name: str, spec: LocalQueueSpec) -> Manifest:
    """The LocalQueue; its ClusterQueue is immutable, so a change is a replacement."""
    return _kueue("LocalQueue", name, namespace=spec.tenant, spec={"clusterQueue": spec.cluster_queue})


def workload_priority_class(name: str, spec: WorkloadPrioritySpec) -> Manifest:
    manifest = _kueue("WorkloadPriorityClass", name, value=spec.value)
    return {**manifest, "description": spec.description} if spec.description else manifest


def _kueue(kind: str, name: str, *, namespace: str | None = None, **body: object) -> Manifest:
    metadata: dict[str, Any] = {"name": name, "labels": labels(_COMPONENT)}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": KUEUE_API, "kind": kind, "metadata": metadata, **body}


def tenants_of(spec: QueuesSpec) -> dict[str, set[str]]:
    """ClusterQueue to the tenants that have a LocalQueue to it."""
    tenants: dict[str, set[str]] = {name: set() for name in spec.cluster_queues}
    for queue in spec.local_queues.values():
        tenants[queue.cluster_queue].add(queue.tenant)
    return tenants


def handed_out(spec: QueuesSpec, resource: str) -> dict[str, int]:
    """Tenant to the most of a resource that its queues may hand out to it, borrowing included."""
    most: dict[str, int] = {}
    for name, tenants in tenants_of(spec).items():
        quotas = [quotas[resource] for quotas in spec.cluster_queues[name].quotas.values() if resource in quotas]
        for tenant in tenants if quotas else ():
            most[tenant] = most.get(tenant, 0) + sum(q.nominal + (q.borrowing_limit or 0) for q in quotas)
    return most


class Queues(pulumi.ComponentResource):
    """Declares what is to be handed out: flavors and cohorts before the ClusterQueues, and the Jobs' priorities."""

    cluster_queues: pulumi.Output[list[str]]

    def __init__(self, name: str, spec: QueuesSpec, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Queues"), name, {"spec": spec.model_dump(mode="json")}, opts)
        for key, priority in spec.workload_priorities.items():
            register(workload_priority_class(key, priority), f"{name}-priority-{key}", parent=self)
        flavors = {
            key: register(flavor(key, body), f"{name}-flavor-{key}", parent=self) for key, body in spec.flavors.items()
        }
        cohorts = {
            key: register(cohort(key), f"{name}-cohort-{key}", parent=self)
            for key in sorted({queue.cohort for queue in spec.cluster_queues.values() if queue.cohort})
        }
        tenants = tenants_of(spec)
        declared = [
            register(
                cluster_queue(key, queue, tenants[key]),
                f"{name}-cluster-{key}",
                parent=self,
                depends_on=[
                    *(flavors[flavor_name] for flavor_name in queue.quotas),
                    *([cohorts[queue.cohort]] if queue.cohort else []),
                ],
            )
            for key, queue in spec.cluster_queues.items()
        ]
        names_declared = sorted(spec.cluster_queues)
        self.cluster_queues = pulumi.Output.all(*(queue.urn for queue in declared)).apply(lambda _: names_declared)
        self.register_outputs({"clusterQueues": self.cluster_queues})


class LocalQueues(pulumi.ComponentResource):
    """Declares the tenants' doors to the ClusterQueues. Their tenants come between the two.

    Kueue keeps a ClusterQueue while a Workload holds quota of it. Deleted in the reverse order, a tenant's namespace
    takes its Jobs and Workloads with it before the ClusterQueue has to go.
    """

    local_queues: pulumi.Output[dict[str, str]]

    def __init__(self, name: str, args: LocalQueuesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        queues = args.spec.local_queues
        tenants = {key: queue.tenant for key, queue in queues.items()}
        super().__init__(component_type("LocalQueues"), name, {"tenants": tenants}, opts)
        declared = [
            register(local_queue(key, queue), f"{name}-{key}", parent=self, depends_on=[args.tenants[queue.tenant]])
            for key, queue in queues.items()
        ]
        self.local_queues = pulumi.Output.all(*(queue.urn for queue in declared)).apply(lambda _: tenants)
        self.register_outputs({"localQueues": self.local_queues})
