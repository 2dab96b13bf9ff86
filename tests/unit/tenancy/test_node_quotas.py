"""Compares the CPU and host memory in queues' quotas with the nodes of the queues' pools."""

from dataclasses import replace

from tenancy.choices import Sharing
from tenancy.ledger import Ledger, NodeQuota, Pool
from tenancy.node_quotas import overdrawn
from tenancy.sums import contradictions

L4 = Pool(
    name="l4",
    node_selector={"gpu": "l4"},
    nodes=2,
    device_count=1,
    sharing=Sharing.WHOLE,
    node_cpu="15500m",
    node_memory="64Gi",
)
CPU = NodeQuota(holder="ClusterQueue a", pool="l4", resource="cpu", nominal="16")
MEMORY = NodeQuota(holder="cohort site", pool="l4", resource="memory", nominal="128Gi")
LEDGER = Ledger(domain="example.com", pools=(L4,), node_quotas=(CPU, replace(CPU, holder="b", nominal="15"), MEMORY))


def test_quotas_of_queues_and_cohorts_add_up() -> None:
    more = replace(MEMORY, holder="c", nominal="512Mi")
    changed = replace(LEDGER, node_quotas=(*LEDGER.node_quotas, more, replace(CPU, holder="c", nominal="500m")))
    assert [*overdrawn(changed)] == [
        "l4: queues have 31500m cpu, its nodes have 31; lower nominal or borrowing_limit, or raise pools.l4.node_cpu",
        "l4: queues have 131584Mi memory, its nodes have 128Gi; lower nominal or borrowing_limit, or raise "
        "pools.l4.node_memory",
    ]
    assert [rule for rule, _ in contradictions(changed)] == ["gpu-quota", "gpu-quota"]


def test_a_queue_borrows_no_more_than_the_nodes_have() -> None:
    changed = replace(LEDGER, node_quotas=(replace(CPU, borrowing="15001m"),))
    assert [*overdrawn(changed)] == [
        "ClusterQueue a: may hand out 31001m cpu of l4, its nodes have 31; lower nominal or borrowing_limit, or "
        "raise pools.l4.node_cpu"
    ]
