"""Tests that reconcile's requests grow at most in proportion to the number of nodes."""

import math
from collections import Counter
from dataclasses import replace

from agents.kube.client import PAGE
from tests.support.fake_cluster import LABELS, T4, Served
from tests.support.reconciling import reconciler

FEW, TIMES = 20, 10
MANY = FEW * TIMES
PODS_A_NODE = 10


def asked(served: Served, nodes: int, *, advertised: bool) -> Counter[str]:
    cluster, held = served.cluster, {"gpumem": "14k", "gpu_count": "14k"} if advertised else {}
    cluster.nodes.clear()
    cluster.pods.clear()
    cluster.add_ledger(replace(T4, nodes=nodes))
    for number in range(nodes):
        cluster.add_node(f"node-{number}", LABELS, **held)
        for seat in range(PODS_A_NODE):
            cluster.add_pod(f"pod-{number}-{seat}", f"node-{number}", "1k")
    cluster.requests.clear()
    assert reconciler(served).run() == 0
    return Counter(method for method, _ in cluster.requests)


def reads(nodes: int) -> int:
    return 2 + math.ceil(nodes / PAGE) + math.ceil(nodes * PODS_A_NODE / PAGE)


def test_a_pass_without_work_reads_each_object_once(served: Served) -> None:
    few, many = (asked(served, nodes, advertised=True) for nodes in (FEW, MANY))
    assert set(few) == set(many) == {"GET"}
    assert many["GET"] <= reads(MANY)
    assert many.total() <= TIMES * few.total()


def test_a_node_that_lost_its_keys_costs_one_write_and_one_event(served: Served) -> None:
    few, many = (asked(served, nodes, advertised=False) for nodes in (FEW, MANY))
    assert (many["PATCH"], many["POST"]) == (MANY, MANY)
    assert many["GET"] <= 2 * reads(MANY)
    assert many.total() <= TIMES * few.total()
