"""The stack of tests/e2e/queues, with queues for each kind of work and for each setting of queues."""

from typing import Any

from tenancy.frameworks import FrameworkName
from tenancy.names import GPU
from tests.support.e2e.queueing import GPUS, POOL, whole
from tests.support.e2e.rollout import HIGH, LOW
from tests.support.prod import raw
from toolchain.cluster import simulated

TEAM, OTHERS = "team-a", "team-b"  # They share the GPUs of a queue.
CHOOSERS = "team-c"  # A tenant that chooses among queues with different settings.
QUEUE, DEFAULT = "team-a-gpu", "default"
ACCOUNT = "multikueue"  # The account of the manager cluster.

LABELS = simulated.gpu_labels(sharing="none", replicas=1)
ELASTIC = "elastic"  # A pool whose node does not exist yet.
SINGLES = ("l4", "t4", "site", ELASTIC)  # Each node has the name of its pool, and one GPU.
CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
PARAMETERS = {"ValidUntilSeconds": "600"}
SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}


def one(pool: str, nominal: int = 1, borrowing: int | None = None) -> dict[str, Any]:
    limit = {} if borrowing is None else {"borrowing_limit": borrowing}
    return {pool: {GPU: {"nominal": nominal, **limit}}}


_BORROWS = {
    "cohort": "lab",
    "quotas": one("site", nominal=0, borrowing=1),
    "preemption": {
        "within_cluster_queue": "Never",
        "reclaim_within_cohort": "LowerPriority",
        "borrow_within_cohort": {"policy": "LowerPriority", "max_priority_threshold": 500},
    },
}
# Kueue makes the submitter of a RayJob, with requests for CPU and memory.
_FOR_SUBMITTERS = {"cores": {"cpu": {"nominal": 8}, "memory": {"nominal": "8Gi"}}}
_CORES = {"cores": {"cpu": {"nominal": "1500m"}, "memory": {"nominal": "2Gi"}}}
# Each of these ClusterQueues has a LocalQueue of the same name.
_OF_THE_CHOOSERS = {
    "either": {
        "quotas": {**one("l4"), **one("t4"), **_CORES},
        "flavor_fungibility": {"when_can_preempt": "TryNextFlavor"},
    },
    "borrows": _BORROWS,
    "borrows-too": _BORROWS,
    "grows": {"quotas": one(ELASTIC), "admission_checks": [{"name": "autoscaler", "on_flavors": [ELASTIC]}]},
}
_QUEUES = {
    "frameworks": [str(name) for name in FrameworkName],
    "managers": [ACCOUNT],
    "flavors": {
        "gpus": {"pool": POOL},
        "l4": {"pool": "l4"},
        "t4": {"pool": "t4", "node_taints": [SPOT]},
        "site": {"pool": "site"},
        ELASTIC: {"pool": ELASTIC},
        "cores": {},
    },
    "admission_checks": {
        "autoscaler": {
            "provisioning_class_name": CLASS,
            "parameters": PARAMETERS,
            "managed_resources": [GPU],
            "retry_strategy": {"backoff_limit_count": 1, "backoff_base_seconds": 1, "backoff_max_seconds": 1},
        }
    },
    "cohorts": {"lab": {"parent_name": "whole-site"}, "whole-site": {"quotas": one("site")}},
    "cluster_queues": {"gpus": {"quotas": {"gpus": {GPU: {"nominal": GPUS}}, **_FOR_SUBMITTERS}}, **_OF_THE_CHOOSERS},
    "local_queues": {
        QUEUE: {"tenant": TEAM, "cluster_queue": "gpus"},
        "of-team-b": {"tenant": OTHERS, "cluster_queue": "gpus", "name": DEFAULT},
        **{name: {"tenant": CHOOSERS, "cluster_queue": name} for name in _OF_THE_CHOOSERS},
    },
    "workload_priorities": {LOW: {"value": 100}, HIGH: {"value": 1000}},
}


def settings() -> dict[str, Any]:
    pools = {POOL: whole(), **{name: whole(name, 1) for name in SINGLES}}
    pools[ELASTIC]["least_nodes"] = 0
    return {
        "pools": pools,
        "tenants": {name: {} for name in (TEAM, OTHERS, CHOOSERS)},
        "queues": _QUEUES,
        "kueue": {**raw()["kueue"], "exclude_resource_prefixes": []},
    }
