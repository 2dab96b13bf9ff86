"""The settings of the nodes behind queues: flavors, topologies, and the cluster autoscaler's provisioning requests."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from components.base.spec import (
    DnsLabel,
    LabelKey,
    Labels,
    ObjectName,
    PoolKey,
    ResourceName,
    Spec,
    TaintSpec,
    TolerationSpec,
)
from tenancy.names import LABEL_HOSTNAME


class FlavorSpec(Spec):
    """A ResourceFlavor: all nodes of a pool, or some of its nodes. A flavor without a pool belongs to nodes without
    GPUs."""

    pool: PoolKey | None = Field(
        default=None,
        description="Key of pools: the flavor has the nodes of the pool. A flavor for CPU and memory of other nodes "
        "has no pool.",
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
        validate_default=True,
        description="Key of topologies: the topology by which Kueue places the pods of a Job close to each other. If "
        "a queue also has flavors without a topology, a Job gets a flavor with a topology only with one of "
        "Kueue's topology annotations. Kueue refuses changes of the labels and tolerations of a flavor with a "
        "topology; add a flavor with another key instead.",
        examples=["racks"],
    )

    @field_validator("topology_name")
    @classmethod
    def _has_labels(cls, topology: str | None, info: ValidationInfo) -> str | None:
        if topology is not None and info.data.get("pool") is None and not info.data.get("node_labels"):
            raise ValueError("needs a pool or node_labels, because Kueue places pods only on labelled nodes")
        return topology


class TopologySpec(Spec):
    """A Topology: node labels for levels such as rack and host. Nodes with the same value of such a label are close to
    each other."""

    levels: list[LabelKey] = Field(
        min_length=1,
        max_length=16,
        description="Node labels from the widest to the narrowest level. Kueue refuses changes of a topology's levels.",
        examples=[["example.com/rack", LABEL_HOSTNAME]],
    )

    @field_validator("levels")
    @classmethod
    def _are_in_order(cls, levels: list[str]) -> list[str]:
        if len(set(levels)) != len(levels):
            raise ValueError("names a label twice")
        if LABEL_HOSTNAME in levels[:-1]:
            raise ValueError(f"{LABEL_HOSTNAME} must be the last level")
        return levels


class RetryStrategySpec(Spec):
    """The times between a failed ProvisioningRequest of a Job and the next one."""

    backoff_limit_count: Annotated[int, Field(ge=0, le=100)] = Field(
        default=3, description="Number of retries after a failed request for nodes.", examples=[3]
    )
    backoff_base_seconds: Annotated[int, Field(ge=1)] = Field(
        default=60,
        description="Time before the first retry for a Job. The time doubles with each further retry.",
        examples=[60],
    )
    backoff_max_seconds: Annotated[int, Field(ge=1)] = Field(
        default=1800, description="The longest time before a retry for a Job.", examples=[1800]
    )


class ProvisioningSpec(Spec):
    """A ProvisioningRequestConfig, with which Kueue asks the cluster autoscaler for nodes before a Job starts."""

    provisioning_class_name: ObjectName = Field(
        description="Provisioning class of the cluster autoscaler, such as check-capacity.autoscaling.x-k8s.io.",
        examples=["best-effort-atomic-scale-up.autoscaling.x-k8s.io"],
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
        description="Kueue asks for nodes only for Jobs that request one of the listed resources. Default: for all "
        "Jobs.",
        examples=[["nvidia.com/gpu"]],
    )
    retry_strategy: RetryStrategySpec = Field(
        default=RetryStrategySpec(), description="The times between requests, if they fail."
    )
