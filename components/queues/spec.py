"""The settings of Kueue's objects that we add up, default or refer to. Other fields of Kueue are passed through.

Source: apis/kueue/v1beta2 of sigs.k8s.io/kueue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from components.base.passed import PassedSpec
from components.base.spec import (
    DnsLabel,
    Labels,
    ObjectName,
    PriorityValue,
    Spec,
    StringForm,
    TenantKey,
)
from components.queues.clusters import WorkerClusterSpec
from components.queues.nodes import FlavorSpec, ProvisioningSpec, TopologySpec
from components.queues.quotas import PARTIAL_RESOURCES, QuotaSpec, ResourceGroups
from tenancy.frameworks import FRAMEWORKS, Framework, FrameworkName
from tenancy.names import KUEUE_SERVICE_ACCOUNT, service_account_user
from tenancy.quantity import whole

_DNS = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
AccountName = Annotated[str, StringForm("namespace/name of a ServiceAccount", f"{_DNS}/{_DNS}")]
Weight = Annotated[float, Field(ge=0, le=1_000_000, examples=[2])]


class FairSharingSpec(Spec):
    """The share of idle quota that a queue gets. The weight has an effect only if kueue.fair_sharing is set."""

    weight: Weight = Field(
        default=1,
        description="Weight in fair sharing: with twice the weight, a queue gets twice the share. 0: the "
        "queue gets idle quota only when no other queue can use this quota.",
    )


class QueueCheckSpec(Spec):
    """An admission check that the Jobs of a ClusterQueue must pass."""

    name: DnsLabel = Field(description="Key of admission_checks.", examples=["autoscaler"])
    on_flavors: list[DnsLabel] = Field(
        default_factory=list,
        max_length=64,
        description="Flavors for which Jobs must pass the admission check. Default: all flavors.",
        examples=[["l4"]],
    )


class ClusterQueueSpec(PassedSpec):
    """A ClusterQueue: its quotas by flavor, and how it shares the quotas with other queues."""

    kind = "ClusterQueue"
    defaults = "By default, `preemption.within_cluster_queue` is LowerPriority."

    quotas: ResourceGroups = Field(
        min_length=1, description="Maps a key of flavors to a map from resource name to quota."
    )
    cohort: DnsLabel | None = Field(
        default=None,
        description="Name of a group of queues that lend each other idle quota. A cohort exists once in the "
        "cluster, so queues of other stacks may join it.",
        examples=["research"],
    )
    fair_sharing: FairSharingSpec | None = Field(
        default=None, description="The queue's share of its cohort's idle quota.", examples=[{"weight": 2}]
    )
    admission_checks: list[QueueCheckSpec] = Field(
        default_factory=list,
        max_length=64,
        description="Checks that a Job must pass after Kueue has reserved its quota.",
    )
    clusters: list[DnsLabel] = Field(
        default_factory=list,
        max_length=20,
        description="Keys of clusters: the worker clusters to which Kueue dispatches the Jobs of the queue. Each Job "
        "runs in one worker cluster. Default: the Jobs run in the manager cluster.",
        examples=[["east", "west"]],
    )

    @field_validator("clusters")
    @classmethod
    def _is_the_only_check(cls, clusters: list[str], info: ValidationInfo) -> list[str]:
        if clusters and info.data.get("admission_checks"):
            raise ValueError("is next to admission_checks, and Kueue accepts one of them; remove either")
        return clusters


class CohortSpec(Spec):
    """A Cohort: a group of queues that lend each other idle quota. The cohorts of a cluster form trees."""

    parent_name: DnsLabel | None = Field(
        default=None,
        description="The parent cohort, from which the cohort borrows and to which the cohort lends.",
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


class LocalQueueSpec(PassedSpec):
    """A LocalQueue, through which a tenant's Jobs use a ClusterQueue."""

    kind = "LocalQueue"

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


class WorkloadPrioritySpec(Spec):
    """A WorkloadPriorityClass, which orders the queued Jobs."""

    value: PriorityValue
    description: str = Field(
        default="", description="Description that kubectl shows for the class.", examples=["Best effort"]
    )
    tenants: list[DnsLabel] | None = Field(
        default=None,
        description="The tenants whose work may have this class. By default, all tenants' work may have it, and so "
        "may displace other tenants' work of a lower class.",
        examples=[["research"]],
    )


class InstalledKueueSpec(Spec):
    """Settings for a Kueue that another program installed. A stack with an installed Kueue has no key `kueue`."""

    namespace: DnsLabel = Field(
        default="kueue-system", description="Namespace of the installed Kueue.", examples=["kueue"]
    )
    service_account: ObjectName = Field(
        default=KUEUE_SERVICE_ACCOUNT,
        description="ServiceAccount of the installed Kueue's controller. Only Kueue's ServiceAccount may start the "
        "Jobs of queue tenants.",
        examples=["queueing-controller-manager"],
    )
    namespace_labels: Labels = Field(
        default_factory=dict,
        description="Labels by which Kueue's managedJobsNamespaceSelector selects namespaces. The stack adds "
        "namespace_labels to the namespaces of queue tenants.",
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
        description="The kinds of objects that Kueue queues, by Kueue's names of its integrations. In the namespaces "
        "of queue tenants, Kueue queues every object of the listed kinds. deployment, statefulset and "
        "leaderworkerset also need pod.",
        examples=[["batch/job", "jobset.x-k8s.io/jobset"]],
    )
    framework_accounts: dict[FrameworkName, AccountName] = Field(
        default_factory=dict,
        description="ServiceAccounts of the frameworks' controllers, as namespace/name. Default: the accounts in the "
        "manifests of each framework's project.",
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
    clusters: dict[DnsLabel, WorkerClusterSpec] = Field(
        default_factory=dict,
        description="Worker clusters of MultiKueue, to which queues with `clusters` dispatch their Jobs.",
    )
    managers: list[DnsLabel] = Field(
        default_factory=list,
        description="ServiceAccounts for manager clusters that dispatch Jobs to the worker cluster. The stack creates "
        "each account in Kueue's namespace, with rights on the queued objects of queue tenants.",
        examples=[["multikueue"]],
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
        return frameworks

    @property
    def queued_kinds(self) -> list[Framework]:
        """Returns Kueue's job frameworks, with the accounts that their controllers have in this cluster."""
        return [self._framework(name) for name in sorted(self.frameworks)]

    def _framework(self, name: FrameworkName) -> Framework:
        framework, account = FRAMEWORKS[name], self.framework_accounts.get(name)
        return replace(framework, accounts=(service_account_user(*account.split("/")),)) if account else framework

    @model_validator(mode="after")
    def _hands_out_devices_where_they_are(self) -> "QueuesSpec":
        far = {f"cluster_queues.{name}" for name, queue in self.cluster_queues.items() if queue.clusters}
        here = {flavor: holder for holder, quotas in self.holders() if holder not in far for flavor in quotas}
        for holder, quotas in sorted(self.holders(), key=lambda each: each[0] not in far):
            for flavor, resources in quotas.items():
                pool = self.flavors[flavor].pool if flavor in self.flavors else "unknown"
                devices = sorted(resources.keys() - set(PARTIAL_RESOURCES))
                what = f"but {holder} dispatches its Jobs to other clusters"
                if holder in far and flavor in here:
                    other = here[flavor]
                    raise ValueError(f"flavors.{flavor} is also for {other}, {what}; give {holder} its own flavor")
                if holder in far and pool not in (None, "unknown"):
                    raise ValueError(f"flavors.{flavor} has pool {pool}, {what}; name a flavor without a pool")
                if holder not in far and pool is None and devices:
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
    """Maps each tenant to the largest amount of a resource that its queues may admit. The largest amount includes
    borrowed quota.

    Includes the quota of worker clusters only if a framework has pods. A dispatched pod also exists in the manager
    cluster, with a scheduling gate. For objects of all other kinds, Kueue creates no pod in the manager cluster.
    """
    gated = any(not FRAMEWORKS[each].is_suspended for each in spec.frameworks)
    most: dict[str, int] = {}
    for name, tenants in tenants_of(spec).items():
        if spec.cluster_queues[name].clusters and not gated:
            continue
        quotas = [quotas[resource] for quotas in spec.cluster_queues[name].quotas.values() if resource in quotas]
        for tenant in tenants if quotas else ():
            most[tenant] = most.get(tenant, 0) + sum(whole(q.nominal) + whole(q.borrowing_limit or 0) for q in quotas)
    return most
