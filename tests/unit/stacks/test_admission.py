"""The policies of a whole stack: each has a name of its own, and one that Kubernetes takes."""

from collections import Counter
from typing import Any

from components.admission.pods import policies
from stacks import settings
from stacks.admission import admission_args
from tenancy.names import LABEL_HOSTNAME
from tests.support.prod import raw

WHOLE = {"nodes": 1, "sharing": "whole"}


def names(config: dict[str, Any]) -> list[str]:
    declared = settings.parse(config)
    assert declared.admission is not None
    args = admission_args(declared.admission, declared, declared.ledger())
    return [policy["metadata"]["name"] for policy in policies(args)]


def queues_over(*groups: tuple[str, ...]) -> dict[str, Any]:
    """Prod with a queue of whole devices for each group of pools, each with a tenant of its own."""
    config = raw()
    config["pools"] |= {
        pool: {"node_selector": config["pools"]["batch"]["node_selector"] | {LABEL_HOSTNAME: pool}, **WHOLE}
        for group in groups
        for pool in group
    }
    queues = config["queues"]
    for number, group in enumerate(groups):
        tenant, queue = f"queues-{number}", f"cq-{number}"
        config["tenants"][tenant] = {}
        queues["flavors"] |= {pool: {"pool": pool} for pool in group}
        quotas = {pool: {"nvidia.com/gpu": {"nominal": 1}} for pool in group}
        queues["cluster_queues"][queue] = {"quotas": quotas}
        queues["local_queues"][queue] = {"tenant": tenant, "cluster_queue": queue}
    return config


def test_groups_of_pools_whose_names_join_alike_have_a_policy_each() -> None:
    found = names(queues_over(("a-b", "c"), ("a", "b-c"), ("a-b-c",)))
    assert [name for name, times in Counter(found).items() if times > 1] == []
    assert len([name for name in found if "place-queued" in name and "batch" not in name]) == 3


def test_a_policy_over_many_pools_has_a_name_that_kubernetes_takes() -> None:
    pools = tuple(f"{number}{'x' * 60}" for number in range(5))
    found = names(queues_over(pools, (*pools[:4], "other")))
    assert max(len(name) for name in found) <= 253
    assert len(set(found)) == len(found)
