"""Tests that dispatching queues hand out at most what the worker clusters promise."""

from dataclasses import replace
from typing import Any

from policy.rule import an_object
from tenancy import names
from tenancy.frameworks import FrameworkName
from tenancy.ledger import Ledger, LocalQueue, QueueQuota, WorkerCluster
from tests.support import graphs
from tests.support.consumers import FULL
from tests.support.graphs import judge
from tests.support.prod import declared, raw
from tests.support.queued_work import work

FAR = QueueQuota(queue="far-cq", flavor="far", pool="", resource=names.GPU, nominal=6, clusters=("east", "west"))
CLUSTERS = tuple(WorkerCluster(name=name, promises={names.GPU: amount}) for name, amount in (("east", 4), ("west", 2)))
LOCAL = LocalQueue(name="far", tenant="team-a", queue="far-cq")
LEDGER = replace(
    FULL,
    quotas=(*FULL.quotas, FAR),
    clusters=CLUSTERS,
    local_queues=(*FULL.local_queues, LOCAL),
    frameworks=tuple(FrameworkName),
)


def stack(**queues: Any) -> dict[str, Any]:
    config = raw()
    found = config["queues"]
    found["flavors"]["far"] = {}
    found["cluster_queues"]["far"] = {"quotas": {"far": {names.GPU: {"nominal": 6}}}, "clusters": ["east", "west"]}
    found["local_queues"]["team-a-far"] = {"tenant": "team-a", "cluster_queue": "far"}
    found["clusters"] = {
        name: {"secret": f"{name}-kubeconfig", "promises": {names.GPU: amount}}
        for name, amount in (("east", 4), ("west", 2))
    }
    found.update(queues)
    return config


def test_a_manager_cluster_and_a_worker_cluster_break_no_rule() -> None:
    assert judge(declared(stack(managers=["multikueue"]))) == []


def test_a_manager_cluster_needs_no_pool_of_its_own() -> None:
    config = raw()
    kept = ("cluster", "priorities", "kueue")
    only = {name: part for name, part in config.items() if name in kept}
    queues = {
        "flavors": {"far": {}},
        "cluster_queues": {"far": {"quotas": {"far": {names.GPU: {"nominal": 1}}}, "clusters": ["east"]}},
        "local_queues": {"team-a-far": {"tenant": "team-a", "cluster_queue": "far"}},
        "clusters": {"east": {"secret": "east-kubeconfig", "promises": {names.GPU: 1}}},
    }
    stack = {**only, "tenants": {"team-a": {}}, "admission": {"gpu_priority": "gpu-workload"}, "queues": queues}
    assert judge(declared(stack)) == []


def test_queues_of_worker_clusters_hand_out_at_most_their_promises() -> None:
    config = stack()
    config["queues"]["clusters"]["west"]["promises"] = {names.GPU: 1}
    assert judge(declared(config)) == [
        "clusters: ClusterQueue far: may hand out 6 nvidia.com/gpu (nominal and borrowed), but the worker clusters "
        "promise 5 (east 4, west 1); lower nominal or borrowing_limit, or raise queues.clusters.east.promises or "
        "queues.clusters.west.promises"
    ]


def program(nominal: int, name: str = "mine") -> graphs.Program:
    queue = graphs.cluster_queue("far", nominal=nominal)
    queue["metadata"]["name"] = name
    return {"queue": queue}


def test_another_program_hands_out_nothing_of_worker_clusters() -> None:
    (line,) = judge(program(1), {"ledger": LEDGER.to_data()})
    assert line == (
        "gpu-quota: ClusterQueue mine: may hand out 1 nvidia.com/gpu of flavor far, the ledger promises it 0; remove "
        "it, or add it to queues.cluster_queues.mine.quotas of the platform's stack"
    )
    assert judge(program(0), {"ledger": LEDGER.to_data()}) == []
    lines = judge(program(7, "far-cq"), {"ledger": LEDGER.to_data()})
    assert graphs.rules_of(lines) == {"platform"}


def lines(ledger: Ledger, gpus: int) -> list[str]:
    job = work(FrameworkName.JOB, queue="far")
    job["spec"] |= {"parallelism": gpus, "completions": gpus}
    return judge({"job": job}, {"ledger": ledger.to_data()})


def test_work_that_no_single_worker_cluster_can_hold_would_never_start() -> None:
    """Kueue dispatches a Job to a single worker cluster."""
    assert lines(LEDGER, 4) == []
    (line,) = lines(LEDGER, 5)
    assert line == (
        "queue-coverage: Job team-a/work: asks for 5 nvidia.com/gpu at once, and no worker cluster of ClusterQueue "
        "far-cq promises so much (east 4, west 2): it would never start; lower its parallelism or requests"
    )
    (line,) = lines(LEDGER, 7)
    assert "ClusterQueue far-cq may hand out 6 at most" in line


def test_a_job_beside_its_local_queue_is_judged_by_the_promises_too() -> None:
    job = work(FrameworkName.JOB, queue="far")
    job["spec"] |= {"parallelism": 5, "completions": 5}
    queue = graphs.cluster_queue("far", nominal=6)
    queue["metadata"]["name"] = "far-cq"
    local = an_object(names.KUEUE_API, "LocalQueue", "far", "team-a", spec={"clusterQueue": "far-cq"})
    found = judge({"ledger": graphs.ledger_object(LEDGER), "queue": queue, "local": local, "job": job})
    assert any("no worker cluster of ClusterQueue far-cq promises so much" in line for line in found), found
