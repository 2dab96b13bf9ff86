"""The settings of Kueue's objects. Each key has the name of Kueue's own field, in snake case.

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
    Form,
    LabelKey,
    Labels,
    LabelValue,
    ObjectName,
    PoolKey,
    PriorityValue,
    ResourceName,
    Spec,
    TenantKey,
    TolerationSpec,
)
from components.queues.quotas import PARTIAL_RESOURCES, Quotas, QuotaSpec, ResourceGroups
from tenancy.frameworks import FRAMEWORKS, Framework, FrameworkName
from tenancy.names import KUEUE_SERVICE_ACCOUNT
from tenancy.quantity import whole

StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
_DNS = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
AccountName = Annotated[str, Form("namespace/name of a ServiceAccount", f"{_DNS}/{_DNS}")]
Weight = Annotated[float, Field(ge=0, le=1_000_000, examples=[2])]


class TaintSpec(Spec):
    """A taint of a flavor's nodes. Only Jobs that tolerate the taint get the flavor."""

    key: LabelKey = Field(description="Key of the taint.", examples=["spot"])
    value: LabelValue = Field(default="", description="Value of the taint.", examples=["true"])
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule", description="Effect of the taint."
    )


class FlavorSpec(Spec):
    """A ResourceFlavor: the devices of a pool, or of some of its nodes; without a pool, nodes without our devices."""

    pool: PoolKey | None = Field(
        default=None,
        description="Key of pools: the devices that it hands out; default: none, for CPU and memory of other nodes.",
        examples=["t4"],
    )
    node_labels: Labels = Field(
        default_factory=dict, max_length=8, description="Labels of its nodes, next to the node_selector of its pool."
    )
    node_taints: list[TaintSpec] = Field(
        default_factory=list, max_length=8, description="Taints of its nodes that a Job must tolerate to get it."
    )
    tolerations: list[TolerationSpec] = Field(
        default_factory=list, max_length=8, description="Taints of its nodes that its Jobs tolerate."
    )
    topology_name: DnsLabel | None = Field(
        default=None,
        description="Key of topologies: places the pods of a Job close to each other.",
        examples=["racks"],
    )


class FairSharingSpec(Spec):
    """The share of idle quota, if kueue.fair_sharing is set."""

    weight: Weight = Field(
        default=1, description="Twice the weight is twice the share. 0: a share only when no other queue wants it."
    )


class BorrowWithinCohortSpec(Spec):
    """Preemption by a Job that borrows."""

    policy: Literal["Never", "LowerPriority"] = Field(
        default="Never", description="The Jobs of other queues that a borrowing Job may preempt."
    )
    max_priority_threshold: PriorityValue | None = Field(
        default=None, description="Only Jobs up to this priority are preempted; default: any lower.", examples=[100]
    )


class PreemptionSpec(Spec):
    """ClusterQueue preemption, https://kueue.sigs.k8s.io/docs/concepts/preemption/"""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = Field(
        default="LowerPriority", description="The Jobs of its own queue that a Job may preempt."
    )
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = Field(
        default="Never",
        description="The Jobs of other queues that a Job may preempt, within the quota that these borrowed.",
    )
    borrow_within_cohort: BorrowWithinCohortSpec | None = Field(
        default=None,
        description="Preemption by a Job that borrows. Default: never.",
        examples=[{"policy": "LowerPriority"}],
    )


class FlavorFungibilitySpec(Spec):
    """The choice among several flavors, which Kueue tries in the order of their names."""

    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = Field(
        default="MayStopSearch", description="A flavor fits by borrowing: take it, or try the next one first."
    )
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = Field(
        default="TryNextFlavor", description="A flavor fits by preemption: take it, or try the next one first."
    )
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = Field(
        default=None,
        description="The better of two flavors; default: BorrowingOverPreemption. Only with TryNextFlavor in both.",
    )

    @field_validator("preference")
    @classmethod
    def _has_a_choice(cls, preference: str | None, info: ValidationInfo) -> str | None:
        tried = {info.data.get("when_can_borrow"), info.data.get("when_can_preempt")}
        if preference is not None and tried != {"TryNextFlavor"}:
            raise ValueError("needs TryNextFlavor in when_can_borrow and when_can_preempt")
        return preference


class AdmissionScopeSpec(Spec):
    """The order among the LocalQueues of a ClusterQueue."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"] = Field(
        description="UsageBasedAdmissionFairSharing: the LocalQueue that used the least goes first; needs "
        "kueue.admission_fair_sharing.",
    )


class QueueCheckSpec(Spec):
    """An admission check that a ClusterQueue waits for."""

    name: DnsLabel = Field(description="Key of admission_checks.", examples=["autoscaler"])
    on_flavors: list[DnsLabel] = Field(
        default_factory=list, max_length=64, description="Only for these flavors; default: for all.", examples=[["l4"]]
    )


class ClusterQueueSpec(Spec):
    """A ClusterQueue: its quotas by flavor, and how it shares them."""

    quotas: ResourceGroups = Field(min_length=1, description="Key of flavors to resource to quota.")
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
    flavor_fungibility: FlavorFungibilitySpec = Field(
        default=FlavorFungibilitySpec(), description="The choice where it has several flavors."
    )
    fair_sharing: FairSharingSpec | None = Field(
        default=None, description="Its share of the idle quota of its cohort.", examples=[{"weight": 2}]
    )
    admission_scope: AdmissionScopeSpec | None = Field(
        default=None,
        description="The order among its LocalQueues; default: first come, first served.",
        examples=[{"admission_mode": "UsageBasedAdmissionFairSharing"}],
    )
    admission_checks: list[QueueCheckSpec] = Field(
        default_factory=list, max_length=64, description="Checks that a Job passes after it has its quota."
    )
    stop_policy: StopPolicy = Field(
        default="None", description="Hold: admits no more; HoldAndDrain: also ends what runs. For maintenance."
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
    """A Cohort: queues that lend each other idle quota, within a tree of cohorts."""

    parent_name: DnsLabel | None = Field(
        default=None, description="The cohort that this one borrows from and lends to.", examples=["site"]
    )
    quotas: ResourceGroups = Field(
        default_factory=dict,
        description="Quota of its own, for all of its queues: key of flavors to resource to quota.",
        examples=[{"l4": {"nvidia.com/gpu": {"nominal": 2}}}],
    )
    fair_sharing: FairSharingSpec | None = Field(
        default=None, description="Its share of the idle quota of its parent.", examples=[{"weight": 2}]
    )


class LocalQueueSpec(Spec):
    """A LocalQueue: the name by which a tenant's work uses a ClusterQueue."""

    tenant: TenantKey
    name: DnsLabel | None = Field(
        default=None,
        description="Its name in the tenant's namespace; default: the key. Work that names no queue uses the one with "
        "the name default.",
        examples=["default"],
    )
    cluster_queue: DnsLabel = Field(description="Key of cluster_queues.", examples=["gpu"])
    fair_sharing: FairSharingSpec | None = Field(
        default=None,
        description="Its share among the LocalQueues of a queue with admission_scope.",
        examples=[{"weight": 2}],
    )
    stop_policy: StopPolicy = Field(
        default="None", description="Hold: admits no more; HoldAndDrain: also ends what runs. For maintenance."
    )


class TopologySpec(Spec):
    """A Topology: the labels by which nodes are close to each other, the widest first."""

    levels: list[LabelKey] = Field(
        min_length=1,
        max_length=16,
        description="Node labels from the widest to the narrowest level.",
        examples=[["example.com/rack", "kubernetes.io/hostname"]],
    )


class RetryStrategySpec(Spec):
    """The waits between failed ProvisioningRequests of a Job."""

    backoff_limit_count: Annotated[int, Field(ge=0, le=100)] = Field(
        default=3, description="How often it is tried again.", examples=[3]
    )
    backoff_base_seconds: Annotated[int, Field(ge=1)] = Field(
        default=60, description="The first wait; each next one is twice as long.", examples=[60]
    )
    backoff_max_seconds: Annotated[int, Field(ge=1)] = Field(
        default=1800, description="The longest wait.", examples=[1800]
    )


class ProvisioningSpec(Spec):
    """A ProvisioningRequestConfig: asks the cluster autoscaler for nodes before a Job starts."""

    provisioning_class_name: DnsLabel = Field(
        description="Class of the autoscaler, such as check-capacity.autoscaling.x-k8s.io.",
        examples=["queued-provisioning"],
    )
    parameters: dict[str, str] = Field(
        default_factory=dict, max_length=100, description="Parameters of the class.", examples=[{"max-run": "600"}]
    )
    managed_resources: list[ResourceName] = Field(
        default_factory=list,
        max_length=100,
        description="Only for Jobs that ask for one of these; default: for all.",
        examples=[["nvidia.com/gpu"]],
    )
    retry_strategy: RetryStrategySpec = Field(
        default=RetryStrategySpec(), description="The waits between failed requests."
    )


class WorkloadPrioritySpec(Spec):
    """A WorkloadPriorityClass: the order among queued Jobs."""

    value: PriorityValue
    description: str = Field(default="", description="Description of the class for people.", examples=["Best effort"])


class InstalledKueueSpec(Spec):
    """Kueue that somebody else installed. The stack leaves `kueue` out."""

    namespace: DnsLabel = Field(default="kueue-system", description="Its namespace.", examples=["kueue"])
    service_account: ObjectName = Field(
        default=KUEUE_SERVICE_ACCOUNT,
        description="The account of its controller, which alone may start the Jobs of queue tenants.",
        examples=["queueing-controller-manager"],
    )
    namespace_labels: Labels = Field(
        default_factory=dict,
        description="Labels by which its managedJobsNamespaceSelector chooses namespaces. Queue tenants get them.",
        examples=[{"kueue-managed": "true"}],
    )


class QueuesSpec(Spec):
    """Kueue's objects. The work of a queue tenant waits for the quota of its ClusterQueue."""

    installed_kueue: InstalledKueueSpec = Field(
        default=InstalledKueueSpec(), description="The Kueue that uses these objects, if the stack has no `kueue`."
    )
    frameworks: list[FrameworkName] = Field(
        default=[FrameworkName.JOB],
        min_length=1,
        description="The kinds of work that Kueue queues, by Kueue's own names. Kueue queues everything of these kinds "
        "in the namespaces of queue tenants. deployment, statefulset and leaderworkerset need pod.",
        examples=[["batch/job", "jobset.x-k8s.io/jobset"]],
    )
    framework_accounts: dict[FrameworkName, AccountName] = Field(
        default_factory=dict,
        description="Accounts of the controllers of these kinds, as namespace/name. Default: those of each project's "
        "own manifests.",
        examples=[{"ray.io/rayjob": "ray-system/kuberay-operator"}],
    )
    flavors: dict[DnsLabel, FlavorSpec] = Field(min_length=1, description="Kinds of devices.")
    cluster_queues: dict[DnsLabel, ClusterQueueSpec] = Field(min_length=1, description="Quotas that Jobs wait for.")
    cohorts: dict[DnsLabel, CohortSpec] = Field(
        default_factory=dict,
        description="Cohorts with a parent, quota or weight of their own. A cohort without these needs no entry.",
    )
    local_queues: dict[DnsLabel, LocalQueueSpec] = Field(min_length=1, description="The queues that Jobs name.")
    topologies: dict[DnsLabel, TopologySpec] = Field(
        default_factory=dict, description="Levels of nodes, for Jobs whose pods must be close to each other."
    )
    admission_checks: dict[DnsLabel, ProvisioningSpec] = Field(
        default_factory=dict, description="Checks by the cluster autoscaler, for nodes that are made on demand."
    )
    workload_priorities: dict[DnsLabel, WorkloadPrioritySpec] = Field(
        default_factory=dict, description="Classes that order the Jobs of a queue."
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
        """Yields every map of quotas, with the path of its holder."""
        for name, queue in self.cluster_queues.items():
            yield f"cluster_queues.{name}", queue.quotas
        for name, cohort in self.cohorts.items():
            yield f"cohorts.{name}", cohort.quotas


def tenants_of(spec: QueuesSpec) -> dict[str, set[str]]:
    """Returns the tenants that have a LocalQueue, by ClusterQueue."""
    tenants: dict[str, set[str]] = {name: set() for name in spec.cluster_queues}
    for queue in spec.local_queues.values():
        tenants[queue.cluster_queue].add(queue.tenant)
    return tenants


def admissible_by_tenant(spec: QueuesSpec, resource: str) -> dict[str, int]:
    """Returns the most of a resource that each tenant's queues may admit, borrowed quota included."""
    most: dict[str, int] = {}
    for name, tenants in tenants_of(spec).items():
        quotas = [quotas[resource] for quotas in spec.cluster_queues[name].quotas.values() if resource in quotas]
        for tenant in tenants if quotas else ():
            most[tenant] = most.get(tenant, 0) + sum(whole(q.nominal) + whole(q.borrowing_limit or 0) for q in quotas)
    return most
