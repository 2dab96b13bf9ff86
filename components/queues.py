"""Queues: Kueue's flavors, ClusterQueues, LocalQueues and WorkloadPriorityClasses (record 0002)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pulumi
from pydantic import Field, ValidationInfo, field_validator

from components.base.manifest import Manifest, component_type, described, manifest, register
from components.base.spec import DnsLabel, Labels, PoolKey, PriorityValue, ResourceName, Spec, TenantKey, TolerationSpec
from tenancy.names import KUEUE_API, LABEL_NAMESPACE
from tenancy.quantity import canonical


class FlavorSpec(Spec):
    """A ResourceFlavor: the devices of a pool, or of some of its nodes."""

    pool: PoolKey
    node_labels: Labels = Field(
        default_factory=dict, max_length=8, description="Labels of its nodes, next to the node_selector of its pool."
    )
    tolerations: list[TolerationSpec] = Field(
        default_factory=list, max_length=8, description="Taints of its nodes that its Jobs tolerate."
    )


Amount = Annotated[int, Field(ge=0, examples=[1])]


class QuotaSpec(Spec):
    """A ClusterQueue's quota of one resource of one flavor."""

    nominal: Amount = Field(description="The queue's own quota.")
    borrowing_limit: Amount | None = Field(
        default=None, description="The most that the queue borrows from idle quota of its cohort. Default: nothing."
    )
    lending_limit: Amount | None = Field(
        default=None, description="The most of its quota that other queues of its cohort may borrow. Default: all."
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

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = Field(
        default="LowerPriority", description="The Jobs of its own queue that a Job may preempt."
    )
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = Field(
        default="Never",
        description="The Jobs of other queues that a Job may preempt, within the quota that these borrowed.",
    )


class ClusterQueueSpec(Spec):
    """A ClusterQueue: its quotas by flavor, and how it shares them."""

    quotas: Quotas = Field(min_length=1, description="Key of flavors to resource to quota.")
    cohort: DnsLabel | None = Field(
        default=None,
        validate_default=True,
        description="Group of queues that lend each other idle quota. Kueue's cohorts belong to the cluster: queues "
        "of other stacks may join.",
        examples=["research"],
    )
    strategy: Literal["BestEffortFIFO", "StrictFIFO"] = Field(
        default="BestEffortFIFO", description="BestEffortFIFO: a Job may start before one that waits for more."
    )
    preemption: PreemptionSpec = Field(default=PreemptionSpec(), description="The Jobs that it may preempt.")

    @field_validator("quotas")
    @classmethod
    def _are_one_resource_group(cls, quotas: Quotas) -> Quotas:
        covered = [resources.keys() for resources in quotas.values()]
        if not covered[0] or any(resources != covered[0] for resources in covered):
            raise ValueError("every flavor must list the same resources, at least one")
        return quotas

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
    """A LocalQueue: the name by which a tenant's Jobs use a ClusterQueue."""

    tenant: TenantKey
    cluster_queue: DnsLabel = Field(description="Key of cluster_queues.", examples=["gpu"])


class WorkloadPrioritySpec(Spec):
    """A WorkloadPriorityClass: the order among queued Jobs."""

    value: PriorityValue
    description: str = Field(default="", description="Description of the class for people.", examples=["Best effort"])


class QueuesSpec(Spec):
    """Kueue's objects. The Jobs of a queue tenant wait for the quota of their ClusterQueue."""

    flavors: dict[DnsLabel, FlavorSpec] = Field(min_length=1, description="Kinds of devices.")
    cluster_queues: dict[DnsLabel, ClusterQueueSpec] = Field(min_length=1, description="Quotas that Jobs wait for.")
    local_queues: dict[DnsLabel, LocalQueueSpec] = Field(min_length=1, description="The queues that Jobs name.")
    workload_priorities: dict[DnsLabel, WorkloadPrioritySpec] = Field(
        default_factory=dict, description="Classes that order the Jobs of a queue."
    )


@dataclass(frozen=True, kw_only=True)
class QueuesArgs:
    """`node_selectors`: the labels of each pool's nodes, by pool."""

    spec: QueuesSpec
    node_selectors: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, kw_only=True)
class LocalQueuesArgs:
    """`tenants`: the resources that declare the namespaces, by tenant."""

    spec: QueuesSpec
    tenants: Mapping[str, pulumi.Resource]


def flavor(name: str, spec: FlavorSpec, node_selector: Mapping[str, str]) -> Manifest:
    """The ResourceFlavor. Kueue adds its labels and its tolerations to the pods of admitted Jobs, so that these run on
    the nodes of the pool."""
    body: dict[str, Any] = {
        "nodeLabels": {**node_selector, **spec.node_labels},
        "tolerations": [toleration.declared for toleration in spec.tolerations],
    }
    return _kueue("ResourceFlavor", name, spec={key: value for key, value in body.items() if value})


def cohort(name: str) -> Manifest:
    """A Cohort without quota of its own. Its ClusterQueues lend each other theirs."""
    return _kueue("Cohort", name, spec={})


def cluster_queue(name: str, spec: ClusterQueueSpec, tenants: Iterable[str]) -> Manifest:
    """The ClusterQueue: one resource group, open to `tenants` only.

    The namespaceSelector uses the label that Kubernetes sets itself; null would admit nobody, {} everybody.
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
    """`In` needs a value. Every namespace has the label, so `DoesNotExist` selects none."""
    if not tenants:
        return {"key": LABEL_NAMESPACE, "operator": "DoesNotExist"}
    return {"key": LABEL_NAMESPACE, "operator": "In", "values": list(tenants)}


def _resource_group(spec: ClusterQueueSpec) -> dict[str, Any]:
    """Sorts flavors and resources by name: maps have no order once the engine has read them."""
    order = sorted(spec.quotas)
    return {
        "coveredResources": sorted(spec.quotas[order[0]]),
        "flavors": [
            {"name": name, "resources": [_quota(spec, *quota) for quota in sorted(spec.quotas[name].items())]}
            for name in order
        ],
    }


def _quota(queue: ClusterQueueSpec, resource: str, spec: QuotaSpec) -> dict[str, str]:
    """Writes a borrowing limit for each quota of a cohort, since Kueue's default is any amount."""
    borrowing = (spec.borrowing_limit or 0) if queue.cohort is not None else None
    limits = {"borrowingLimit": borrowing, "lendingLimit": spec.lending_limit}
    given = {key: canonical(amount) for key, amount in limits.items() if amount is not None}
    return {"name": resource, "nominalQuota": canonical(spec.nominal), **given}


def local_queue(name: str, spec: LocalQueueSpec) -> Manifest:
    return _kueue("LocalQueue", name, spec.tenant, spec={"clusterQueue": spec.cluster_queue})


def workload_priority_class(name: str, spec: WorkloadPrioritySpec) -> Manifest:
    return _kueue("WorkloadPriorityClass", name, value=spec.value, **described(spec.description))


def _kueue(kind: str, name: str, namespace: str | None = None, **body: object) -> Manifest:
    return manifest(KUEUE_API, kind, name, "queues", namespace, **body)


def tenants_of(spec: QueuesSpec) -> dict[str, set[str]]:
    """The tenants that have a LocalQueue, by ClusterQueue."""
    tenants: dict[str, set[str]] = {name: set() for name in spec.cluster_queues}
    for queue in spec.local_queues.values():
        tenants[queue.cluster_queue].add(queue.tenant)
    return tenants


def handed_out(spec: QueuesSpec, resource: str) -> dict[str, int]:
    """The most of a resource that each tenant's queues may admit, borrowed quota included."""
    most: dict[str, int] = {}
    for name, tenants in tenants_of(spec).items():
        quotas = [quotas[resource] for quotas in spec.cluster_queues[name].quotas.values() if resource in quotas]
        for tenant in tenants if quotas else ():
            most[tenant] = most.get(tenant, 0) + sum(q.nominal + (q.borrowing_limit or 0) for q in quotas)
    return most


class Queues(pulumi.ComponentResource):
    """The ClusterQueues with their flavors and cohorts, and the Jobs' priorities."""

    def __init__(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        spec = args.spec
        super().__init__(component_type("Queues"), name, {"spec": spec.model_dump(mode="json")}, opts)
        for key, priority in spec.workload_priorities.items():
            register(workload_priority_class(key, priority), f"{name}-priority-{key}", parent=self)
        flavors = {
            key: register(flavor(key, body, args.node_selectors[body.pool]), f"{name}-flavor-{key}", parent=self)
            for key, body in spec.flavors.items()
        }
        cohorts = {
            key: register(cohort(key), f"{name}-cohort-{key}", parent=self)
            for key in sorted({queue.cohort for queue in spec.cluster_queues.values() if queue.cohort})
        }
        tenants = tenants_of(spec)
        for key, queue in spec.cluster_queues.items():
            named = [flavors[flavor_name] for flavor_name in queue.quotas]
            named += [cohorts[queue.cohort]] if queue.cohort else []
            declared = cluster_queue(key, queue, tenants[key])
            register(declared, f"{name}-cluster-{key}", parent=self, depends_on=named)
        self.register_outputs({})


class LocalQueues(pulumi.ComponentResource):
    """The tenants' LocalQueues. They depend on the tenants, and the tenants on the ClusterQueues.

    Kueue keeps a ClusterQueue while a Workload holds its quota. All is deleted in reverse order, so a tenant's
    namespace goes first, with its Jobs and Workloads.
    """

    def __init__(self, name: str, args: LocalQueuesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        queues = args.spec.local_queues
        tenants = {key: queue.tenant for key, queue in queues.items()}
        super().__init__(component_type("LocalQueues"), name, {"tenants": tenants}, opts)
        for key, queue in queues.items():
            register(local_queue(key, queue), f"{name}-{key}", parent=self, depends_on=[args.tenants[queue.tenant]])
        self.register_outputs({})
