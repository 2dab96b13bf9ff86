"""Queues: Kueue's flavors, ClusterQueues, LocalQueues and WorkloadPriorityClasses (seed 002)."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.spec import DnsLabel, LabelKey, LabelValue, PriorityValue, ResourceName, Spec


class TolerationSpec(Spec):
    """A toleration that Kueue adds to the pods of admitted Jobs."""

    key: LabelKey
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class FlavorSpec(Spec):
    """A ResourceFlavor and the pool whose devices it stands for."""

    pool: DnsLabel
    node_labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=8)
    tolerations: list[TolerationSpec] = Field(default_factory=list, max_length=8)


class QuotaSpec(Spec):
    """What a ClusterQueue may hand out of one resource of one flavor."""

    nominal: Annotated[int, Field(ge=0)]
    borrowing_limit: Annotated[int, Field(ge=0)] | None = None
    lending_limit: Annotated[int, Field(ge=0)] | None = None


class PreemptionSpec(Spec):
    """ClusterQueue preemption, https://kueue.sigs.k8s.io/docs/concepts/preemption/"""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "LowerPriority"
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"


class ClusterQueueSpec(Spec):
    """A ClusterQueue: its quotas by flavor, in the order in which Kueue tries the flavors, and who may use it."""

    quotas: dict[DnsLabel, dict[ResourceName, QuotaSpec]] = Field(
        min_length=1, description="Key of flavors to resource to quota."
    )
    cohort: DnsLabel | None = None
    strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    preemption: PreemptionSpec = PreemptionSpec()

    @model_validator(mode="after")
    def _is_one_resource_group(self) -> "ClusterQueueSpec":
        covered = [tuple(resources) for resources in self.quotas.values()]
        if not covered[0] or any(resources != covered[0] for resources in covered):
            raise ValueError("every flavor must list the same resources in the same order, at least one")
        limits = [q for resources in self.quotas.values() for q in resources.values()]
        if self.cohort is None and any(q.borrowing_limit is not None or q.lending_limit is not None for q in limits):
            raise ValueError("borrowing_limit and lending_limit need a cohort; name one or remove them")
        if any(q.lending_limit is not None and q.lending_limit > q.nominal for q in limits):
            raise ValueError("lending_limit must not exceed nominal")
        return self


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
