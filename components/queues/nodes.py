"""The settings of the nodes behind queues: flavors, topologies, and the cluster autoscaler's provisioning requests."""

from pydantic import Field

from components.base.passed import PassedSpec
from components.base.spec import DnsLabel, LabelKey, PoolKey, Spec
from tenancy.names import LABEL_HOSTNAME


class FlavorSpec(PassedSpec):
    """A ResourceFlavor: all nodes of a pool, or those with the `node_labels`. A flavor without a pool belongs to nodes
    without GPUs."""

    kind = "ResourceFlavor"
    defaults = (
        "The flavor also has the node_selector of its pool as labels. By default, a toleration has the effect "
        "NoSchedule, and without a value it tolerates every value."
    )

    pool: PoolKey | None = Field(
        default=None,
        description="Key of pools: the flavor has the nodes of the pool. A flavor for CPU and memory of other nodes "
        "has no pool.",
        examples=["t4"],
    )
    topology_name: DnsLabel | None = Field(
        default=None,
        description="Key of topologies: the topology by which Kueue places the pods of a Job close to each other. If "
        "a queue also has flavors without a topology, a Job gets a flavor with a topology only with one of "
        "Kueue's topology annotations. Kueue refuses changes of the labels and tolerations of a flavor with a "
        "topology; add a flavor with another key instead.",
        examples=["racks"],
    )


class TopologySpec(Spec):
    """A Topology: node labels for levels such as rack and host. Nodes with the same value of such a label are close to
    each other."""

    levels: list[LabelKey] = Field(
        min_length=1,
        max_length=16,
        description="Node labels from the widest to the narrowest level. Kueue refuses changes of a topology's levels.",
        examples=[["example.com/rack", LABEL_HOSTNAME]],
    )


class ProvisioningSpec(PassedSpec):
    """A ProvisioningRequestConfig, with which Kueue asks the cluster autoscaler for nodes before a Job starts."""

    kind = "ProvisioningRequestConfig"
