"""The settings of Kueue's objects. Each key has the name of Kueue's field, in snake case.

Source: apis/kueue/v1beta2 of sigs.k8s.io/kueue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from components.base.identity import service_account_user
from components.base.spec import (
    DnsLabel,
    LabelKey,
    Labels,
    LabelValue,
    ObjectName,
    PoolKey,
    PriorityValue,
    ResourceName,
    Spec,
    StringForm,
    TenantKey,
    TolerationSpec,
)
from components.queues.quotas import PARTIAL_RESOURCES, Quotas, QuotaSpec, ResourceGroups
from tenancy.frameworks import FRAMEWORKS, Framework, FrameworkName
from tenancy.names import KUEUE_SERVICE_ACCOUNT
from tenancy.quantity import whole

StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
_DNS = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
AccountName = Annotated[str, StringForm("namespace/name of a ServiceAccount", f"{_DNS}/{_DNS}")]
Weight = Annotated[float, Field(ge=0, le=1_000_000, examples=[2])]


class TaintSpec(Spec):
    """A taint of a flavor's nodes. Kueue assigns the flavor only to Jobs that tolerate the taint."""

    key: LabelKey = Field(description="Key of the taint.", examples=["spot"])
    value: LabelValue = Field(default="", description="Value of the taint.", examples=["true"])
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule", description="Effect of the taint."
    )


class FlavorSpec(Spec):
    """A ResourceFlavor: all nodes of a pool, or some of its nodes. A flavor without a pool is for nodes without
    GPUs."""

    pool: PoolKey | None = Field(
        default=None,
        description="Key of pools: the nodes of this flavor. A flavor for CPU and memory of other nodes has no pool.",
        examples=["t4"],
    )
    node_labels: Labels = Field(
        default_factory=dict,
        max_length=8,
        description="Labels of the flavor's nodes, in addition to the node_selector of its pool.",
    )
    node_taints: list[TaintSpec] = Field(
        default_factory=list,
        max_length=8,
        description="Taints of the flavor's nodes. A Job that does not tolerate them does not get the flavor.",
    )
    tolerations: list[TolerationSpec] = Field(
        default_factory=list,
        max_length=8,
        description="Tolerations that Kueue adds to the pods of Jobs with this flavor.",
    )
    topology_name: DnsLabel | None = Field(
        default=None,
        description="Key of topologies: the topology by which Kueue places the pods of a Job close to each other.",
        examples=["racks"],
    )


class FairSharingSpec(Spec):
    """The share of idle quota. The share has an effect only if kueue.fair_sharing is set."""

    weight: Weight = Field(
        default=1,
        description="Weight in fair sharing: with twice the weight, a queue gets twice the share. 0: the "
        "queue gets idle quota only when no other queue can use this quota.",
    )


class BorrowWithinCohortSpec(Spec):
    """Preemption by a Job that borrows."""

    policy: Literal["Never", "LowerPriority"] = Field(
        default="Never", description="The Jobs of other queues that a Job may preempt while its queue borrows."
    )
    max_priority_threshold: PriorityValue | None = Field(
        default=None,
        description="Only Jobs with at most this priority are preempted. Default: all Jobs with a lower priority.",
        examples=[100],
    )


class PreemptionSpec(Spec):
    """ClusterQueue preemption, https://kueue.sigs.k8s.io/docs/concepts/preemption/"""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = Field(
        default="LowerPriority", description="The Jobs in the same ClusterQueue that a Job may preempt."
    )
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = Field(
        default="Never",
        description="The Jobs of other queues that a Job may preempt to get back quota that these queues borrowed.",
    )
    borrow_within_cohort: BorrowWithinCohortSpec | None = Field(
        default=None,
        description="Preemption by a Job that borrows. Default: never.",
        examples=[{"policy": "LowerPriority"}],
    )


class FlavorFungibilitySpec(Spec):
    """The choice of a Job's flavor. Kueue tries the flavors in the order of their names."""

    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = Field(
        default="MayStopSearch",
        description="If the Job fits a flavor only by borrowing: MayStopSearch may use this "
        "flavor, TryNextFlavor tries the next flavor first.",
    )
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = Field(
        default="TryNextFlavor",
        description="If the Job fits a flavor only by preemption: MayStopSearch may use "
        "this flavor, TryNextFlavor tries the next flavor first.",
    )
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = Field(
        default=None,
        description="The flavor that Kueue prefers if one flavor needs borrowing and another needs preemption. "
        "Default: BorrowingOverPreemption. Only with TryNextFlavor in when_can_borrow and when_can_preempt.",
    )

    @field_validator("preference")
    @classmethod
    def _has_a_choice(cls, preference: str | None, info: ValidationInfo) -> str | None:
        tried = {info.data.get("when_can_borrow"), info.data.get("when_can_preempt")}
        if preference is not None and tried != {"TryNextFlavor"}:
            raise ValueError("needs TryNextFlavor in when_can_borrow and when_can_preempt")
        return preference


class AdmissionScopeSpec(Spec):
    """The order of the LocalQueues of a ClusterQueue."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"] = Field(
        description="UsageBasedAdmissionFairSharing: the LocalQueue with the least past use comes first. It needs "
        "kueue.admission_fair_sharing.",
    )


class QueueCheckSpec(Spec):
    """An admission check that the Jobs of a ClusterQueue must pass."""

    name: DnsLabel = Field(description="Key of admission_checks.", examples=["autoscaler"])
    on_flavors: list[DnsLabel] = Field(
        default_factory=list,
        max_length=64,
        description="Flavors for which the check is needed. Default: all flavors.",
        examples=[["l4"]],
    )


class ClusterQueueSpec(Spec):
    """A ClusterQueue: its quotas by flavor, and how it shares the quotas with other queues."""

    quotas: ResourceGroups = Field(
        min_length=1, description="Maps a key of flavors to a map from resource name to quota."
    )
    cohort: DnsLabel | None = Field(
        default=None,
        validate_default=True,
        description="Name of a group of queues that lend each other idle quota. A cohort exists once in the "
        "cluster, so queues of other stacks may join it.",
        examples=["research"],
    )
    strategy: Literal["BestEffortFIFO", "StrictFIFO"] = Field(
        default="BestEffortFIFO",
        description="BestEffortFIFO: a Job may start before an older Job that waits for "
        "more quota. StrictFIFO: the oldest Job always starts first.",
    )
    preemption: PreemptionSpec = Field(
        default=PreemptionSpec(), description="The Jobs that a Job of this queue may preempt."
    )
    flavor_fungibility: FlavorFungibilitySpec = Field(
        default=FlavorFungibilitySpec(), description="The choice of a Job's flavor, if the queue has several flavors."
    )
    fair_sharing: FairSharingSpec | None = Field(
        default=None, description="The queue's share of its cohort's idle quota.", examples=[{"weight": 2}]
    )
    admission_scope: AdmissionScopeSpec | None = Field(
        default=None,
        description="The order of the queue's LocalQueues. Default: first come, first served.",
        examples=[{"admission_mode": "UsageBasedAdmissionFairSharing"}],
    )
    admission_checks: list[QueueCheckSpec] = Field(
        default_factory=list,
        max_length=64,
        description="Checks that a Job must pass after Kueue has reserved its quota.",
    )
    stop_policy: StopPolicy = Field(
        default="None",
        description="With Hold, the queue admits no more Jobs. With HoldAndDrain, Kueue also evicts running Jobs.",
    )

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


class CohortSpec(Spec):
    """A Cohort: a group of queues that lend each other idle quota. Cohorts form a tree."""

    parent_name: DnsLabel | None = Field(
        default=None,
        description="The parent cohort, from which this cohort borrows and to which it lends.",
        examples=["site"],
    )
    quotas: ResourceGroups = Field(
        default_factory=dict,
        description="Quota that all queues of the cohort may borrow: maps a key of flavors to a map from resource "
        "name to quota.",
        examples=[{"l4": {"nvidia.com/gpu": {"nominal": 2}}}],
    )
    fair_sharing: FairSharingSpec | None = Field(
        default=None, description="The cohort's share of its parent's idle quota.", examples=[{"weight": 2}]
    )


class LocalQueueSpec(Spec):
    """A LocalQueue, through which a tenant's Jobs use a ClusterQueue."""

    tenant: TenantKey
    name: DnsLabel | None = Field(
        default=None,
        description="Name of the LocalQueue in the tenant's namespace. Default: the key. Jobs that name no queue "
        "use the LocalQueue with the name `default`.",
        examples=["default"],
    )
    cluster_queue: DnsLabel = Field(description="Key of cluster_queues.", examples=["gpu"])
    fair_sharing: FairSharingSpec | None = Field(
        default=None,
        description="The LocalQueue's share among the LocalQueues of a ClusterQueue with admission_scope.",
        examples=[{"weight": 2}],
    )
    stop_policy: StopPolicy = Field(
        default="None",
        description="With Hold, the queue admits no more Jobs. With HoldAndDrain, Kueue also evicts running Jobs.",
    )


class TopologySpec(Spec):
    """A Topology: node labels for levels such as rack and host. Nodes with the same value are close to each other."""

    levels: list[LabelKey] = Field(
        min_length=1,
        max_length=16,
        description="Node labels from the widest to the narrowest level.",
        examples=[["example.com/rack", "kubernetes.io/hostname"]],
    )


class RetryStrategySpec(Spec):
    """The times between a failed ProvisioningRequest of a Job and the next one."""

    backoff_limit_count: Annotated[int, Field(ge=0, le=100)] = Field(
        default=3, description="Number of retries after a failed request.", examples=[3]
    )
    backoff_base_seconds: Annotated[int, Field(ge=1)] = Field(
        default=60, description="Time before the first retry. Each further time is twice as long.", examples=[60]
    )
    backoff_max_seconds: Annotated[int, Field(ge=1)] = Field(
        default=1800, description="The longest time before a retry.", examples=[1800]
    )


class ProvisioningSpec(Spec):
    """A ProvisioningRequestConfig, with which Kueue asks the cluster autoscaler for nodes before a Job starts."""

    provisioning_class_name: DnsLabel = Field(
        description="Provisioning class of the cluster autoscaler, such as check-capacity.autoscaling.x-k8s.io.",
        examples=["queued-provisioning"],
    )
    parameters: dict[str, str] = Field(
        default_factory=dict,
        max_length=100,
        description="Parameters of the provisioning class.",
        examples=[{"max-run": "600"}],
    )
    managed_resources: list[ResourceName] = Field(
        default_factory=list,
        max_length=100,
        description="Kueue asks for nodes only for Jobs that request one of these resources. Default: for all Jobs.",
        examples=[["nvidia.com/gpu"]],
    )
    retry_strategy: RetryStrategySpec = Field(
        default=RetryStrategySpec(), description="The times between requests, if they fail."
    )


class WorkloadPrioritySpec(Spec):
    """A WorkloadPriorityClass, which orders the queued Jobs."""

    value: PriorityValue
    description: str = Field(
        default="", description="Description that kubectl shows for the class.", examples=["Best effort"]
    )


class InstalledKueueSpec(Spec):
    """Settings for a Kueue that another program installed. The stack has no key `kueue` then."""

    namespace: DnsLabel = Field(default="kueue-system", description="Namespace of this Kueue.", examples=["kueue"])
    service_account: ObjectName = Field(
        default=KUEUE_SERVICE_ACCOUNT,
        description="ServiceAccount of Kueue's controller. Only this account may start the Jobs of queue tenants.",
        examples=["queueing-controller-manager"],
    )
    namespace_labels: Labels = Field(
        default_factory=dict,
        description="Labels by which Kueue's managedJobsNamespaceSelector selects namespaces. The stack adds these "
        "labels to the namespaces of queue tenants.",
        examples=[{"kueue-managed": "true"}],
    )


class QueuesSpec(Spec):
    """Kueue's objects. A queue tenant's Job waits until its ClusterQueue has enough quota."""

    installed_kueue: InstalledKueueSpec = Field(
        default=InstalledKueueSpec(), description="The Kueue that uses these objects, if the stack has no `kueue`."
    )
    frameworks: list[FrameworkName] = Field(
        default=[FrameworkName.JOB],
        min_length=1,
        description="The kinds of objects that Kueue queues, by Kueue's names of its integrations. In the "
        "namespaces of queue tenants, Kueue queues every object of these kinds. deployment, statefulset and "
        "leaderworkerset also need pod.",
        examples=[["batch/job", "jobset.x-k8s.io/jobset"]],
    )
    framework_accounts: dict[FrameworkName, AccountName] = Field(
        default_factory=dict,
        description="ServiceAccounts of these kinds' controllers, as namespace/name. Default: the accounts in each "
        "project's own manifests.",
        examples=[{"ray.io/rayjob": "ray-system/kuberay-operator"}],
    )
    flavors: dict[DnsLabel, FlavorSpec] = Field(
        min_length=1, description="Kinds of nodes from which queues hand out devices, CPU and memory."
    )
    cluster_queues: dict[DnsLabel, ClusterQueueSpec] = Field(
        min_length=1, description="ClusterQueues: the quotas for which Jobs wait."
    )
    cohorts: dict[DnsLabel, CohortSpec] = Field(
        default_factory=dict,
        description="Cohorts with a parent, with quota or with a weight. A cohort without these needs no entry.",
    )
    local_queues: dict[DnsLabel, LocalQueueSpec] = Field(
        min_length=1, description="LocalQueues, which Jobs name in their label."
    )
    topologies: dict[DnsLabel, TopologySpec] = Field(
        default_factory=dict, description="Topologies, for Jobs with pods that must be close to each other."
    )
    admission_checks: dict[DnsLabel, ProvisioningSpec] = Field(
        default_factory=dict,
        description="Admission checks by the cluster autoscaler, which adds nodes when a Job needs them.",
    )
    workload_priorities: dict[DnsLabel, WorkloadPrioritySpec] = Field(
        default_factory=dict, description="WorkloadPriorityClasses, which order the Jobs of a queue."
    )

    @field_validator("frameworks")
    @classmethod
    def _can_gate_pods(cls, frameworks: list[FrameworkName]) -> list[FrameworkName]:
        gated = sorted(each for each in frameworks if each != FrameworkName.POD and not FRAMEWORKS[each].is_suspended)
        if gated and FrameworkName.POD not in frameworks:
            raise ValueError(f"{gated[0]} queues its pods one by one; add {FrameworkName.POD.value}")
        if len(set(frameworks)) != len(frameworks):
            raise ValueError("names a framework twice")
        return frameworks

    @property
    def queued_kinds(self) -> list[Framework]:
        """Returns the frameworks with the accounts of this cluster's controllers."""
        return [self._framework(name) for name in sorted(self.frameworks)]

    def _framework(self, name: FrameworkName) -> Framework:
        framework, account = FRAMEWORKS[name], self.framework_accounts.get(name)
        return replace(framework, accounts=(service_account_user(*account.split("/")),)) if account else framework

    @model_validator(mode="after")
    def _hands_devices_out_of_pools(self) -> "QueuesSpec":
        for holder, quotas in self.holders():
            for flavor, resources in quotas.items():
                devices = sorted(resource for resource in resources if resource not in PARTIAL_RESOURCES)
                if flavor in self.flavors and self.flavors[flavor].pool is None and devices:
                    raise ValueError(f"flavors.{flavor} has no pool, but {holder} hands out {devices[0]}; name one")
        return self

    def holders(self) -> Iterable[tuple[str, Mapping[str, Mapping[str, QuotaSpec]]]]:
        """Yields each map of quotas, with the path of the ClusterQueue or Cohort."""
        for name, queue in self.cluster_queues.items():
            yield f"cluster_queues.{name}", queue.quotas
        for name, cohort in self.cohorts.items():
            yield f"cohorts.{name}", cohort.quotas


def tenants_of(spec: QueuesSpec) -> dict[str, set[str]]:
    """Maps each ClusterQueue to the tenants of its LocalQueues."""
    tenants: dict[str, set[str]] = {name: set() for name in spec.cluster_queues}
    for queue in spec.local_queues.values():
        tenants[queue.cluster_queue].add(queue.tenant)
    return tenants


def admissible_by_tenant(spec: QueuesSpec, resource: str) -> dict[str, int]:
    """Maps each tenant to the largest amount of a resource that its queues may admit, borrowed quota included."""
    most: dict[str, int] = {}
    for name, tenants in tenants_of(spec).items():
        quotas = [quotas[resource] for quotas in spec.cluster_queues[name].quotas.values() if resource in quotas]
        for tenant in tenants if quotas else ():
            most[tenant] = most.get(tenant, 0) + sum(whole(q.nominal) + whole(q.borrowing_limit or 0) for q in quotas)
    return most
