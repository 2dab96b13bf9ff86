"""Tests that dispatching queues stay within the promises of the worker clusters."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from tenancy.dispatch import overdrawn
from tenancy.ledger import Ledger, QueueQuota, WorkerCluster
from tenancy.names import GPU

CLUSTERS = ("east", "north", "west")
QUEUES = st.lists(st.tuples(st.sets(st.sampled_from(CLUSTERS), min_size=1), st.integers(0, 6)), max_size=4)


def quota(queue: str, nominal: int, *clusters: str, flavor: str = "far", borrowing: int = 0) -> QueueQuota:
    return QueueQuota(
        queue=queue, flavor=flavor, pool="", resource=GPU, nominal=nominal, borrowing=borrowing, clusters=clusters
    )


def ledger(*quotas: QueueQuota, **promised: int) -> Ledger:
    clusters = tuple(WorkerCluster(name=name, promises={GPU: amount}) for name, amount in promised.items())
    return Ledger(domain="example.com", pools=(), quotas=quotas, clusters=clusters)


def test_a_queue_above_its_clusters_is_reported_with_all_numbers() -> None:
    far = (quota("train", 5, "east", "west"), quota("train", 2, "east", "west", flavor="more", borrowing=1))
    assert list(overdrawn(ledger(*far, east=4, west=3))) == [
        "ClusterQueue train: may hand out 8 nvidia.com/gpu (nominal and borrowed), but the worker clusters promise 7 "
        "(east 4, west 3); lower nominal or borrowing_limit, or raise queues.clusters.east.promises or "
        "queues.clusters.west.promises"
    ]
    assert list(overdrawn(ledger(*far, east=4, west=4))) == []


def test_queues_that_share_a_cluster_are_judged_together() -> None:
    quotas = (quota("a", 3, "east"), quota("b", 4, "east", "west"), quota("c", 2, "east"))
    assert list(overdrawn(ledger(*quotas, east=4, west=8))) == [
        "ClusterQueues a, c: hand out 5 nvidia.com/gpu together, but the worker clusters promise 4 (east 4); lower "
        "nominal or borrowing_limit, or raise queues.clusters.east.promises"
    ]
    assert list(overdrawn(ledger(*quotas, east=5, west=4))) == []


@given(QUEUES, st.fixed_dictionaries({name: st.integers(0, 8) for name in CLUSTERS}))
def test_quotas_are_reported_exactly_if_some_queues_exceed_their_clusters(
    queues: list[tuple[set[str], int]], promised: dict[str, int]
) -> None:
    found = list(overdrawn(ledger(*(quota(f"q{i}", n, *sorted(c)) for i, (c, n) in enumerate(queues)), **promised)))
    some = (group for size in range(1, len(queues) + 1) for group in combinations(queues, size))
    exceeds = any(
        sum(nominal for _, nominal in group) > sum(promised[name] for name in set().union(*(c for c, _ in group)))
        for group in some
    )
    assert bool(found) is exceeds
