from typing import Any

import pulumi
import pytest
from pydantic import ValidationError

from components.base.manifest import component_type
from components.queues.clusters import manager_account
from components.queues.component import LocalQueues, LocalQueuesArgs, Queues, QueuesArgs
from components.queues.objects import cluster_queue
from components.queues.spec import ClusterQueueSpec, QueuesSpec, admissible_by_tenant
from tenancy.frameworks import FrameworkName
from tests.support.engine import Graph, build

GPU, GPUMEM = "nvidia.com/gpu", "example.com/gpumem"
SPEC: dict[str, Any] = {
    "flavors": {
        "any": {"pool": "batch", "tolerations": [{"key": GPU}, {"key": "team", "value": "ml", "effect": "NoExecute"}]},
        "l4": {"pool": "l4", "node_labels": {"gpu": "l4"}},
    },
    "cluster_queues": {
        "one": {"quotas": {"any": {GPU: {"nominal": 1}}}},
        "two": {
            "quotas": {
                "any": {GPU: {"nominal": 1, "borrowing_limit": 2, "lending_limit": 0}, GPUMEM: {"nominal": 3000}},
                "l4": {GPU: {"nominal": 4}, GPUMEM: {"nominal": 24576, "borrowing_limit": 1000}},
            },
            "cohort": "lab",
            "queueing_strategy": "StrictFIFO",
            "preemption": {"within_cluster_queue": "LowerOrNewerEqualPriority", "reclaim_within_cohort": "Any"},
        },
        "idle": {"quotas": {"l4": {GPU: {"nominal": 0}}}, "cohort": "lab"},
    },
    "local_queues": {
        "a-one": {"tenant": "team-a", "cluster_queue": "one"},
        "b-one": {"tenant": "team-b", "cluster_queue": "one"},
        "a-two": {"tenant": "team-a", "cluster_queue": "two"},
        "a-two-night": {"tenant": "team-a", "cluster_queue": "two"},
    },
    "workload_priorities": {"low": {"value": 100, "description": "Best effort"}, "high": {"value": 1000}},
}

SELECTORS = {"batch": {"pool": "batch"}, "l4": {"pool": "l4"}}


def spec() -> QueuesSpec:
    return QueuesSpec.model_validate(SPEC)


@pytest.fixture(scope="module")
def graph() -> Graph:
    def program() -> None:
        tenants = {t: pulumi.ComponentResource(component_type("Tenant"), t, {}) for t in ("team-a", "team-b")}
        queues = Queues("queues", QueuesArgs(spec=spec(), node_selectors=SELECTORS))
        opts = pulumi.ResourceOptions(depends_on=[queues])
        LocalQueues("local-queues", LocalQueuesArgs(spec=spec(), tenants=tenants, namespace="kueue-system"), opts)

    return build(program)


def test_flavors_with_the_same_resources_are_a_resource_group() -> None:
    quotas = {
        "cores": {"cpu": {"nominal": "0.5"}, "memory": {"nominal": "2048Mi"}},
        "t4": {GPU: {"nominal": 1}},
        "l4": {GPU: {"nominal": "2"}},
    }
    manifest = cluster_queue("q", ClusterQueueSpec.model_validate({"quotas": quotas}), ["a"])
    cores, devices = manifest["spec"]["resourceGroups"]
    assert (cores["coveredResources"], [each["name"] for each in cores["flavors"]]) == (["cpu", "memory"], ["cores"])
    assert [each["nominalQuota"] for each in cores["flavors"][0]["resources"]] == ["500m", "2Gi"]
    assert (devices["coveredResources"], [each["name"] for each in devices["flavors"]]) == ([GPU], ["l4", "t4"])


@pytest.mark.parametrize(
    ("quotas", "refused"),
    [
        ({"a": {GPU: {"nominal": "500m"}}}, "a.nvidia.com/gpu.nominal must be a whole number"),
        ({"a": {"cpu": {"nominal": "many"}}}, "must be a Kubernetes quantity such as 8, 500m or 32Gi"),
        ({"a": {"cpu": {"nominal": -1}}}, "must be at least 0"),
    ],
)
def test_quotas_that_cannot_be_added_up_are_refused(quotas: dict[str, Any], refused: str) -> None:
    with pytest.raises(ValidationError, match=refused):
        ClusterQueueSpec.model_validate({"quotas": quotas, "cohort": "lab"})


def test_a_flavor_without_a_pool_hands_out_no_devices() -> None:
    changed = {**SPEC, "flavors": {**SPEC["flavors"], "any": {}}}
    with pytest.raises(ValidationError, match=r"flavors.any has no pool, but cluster_queues.one hands out nvidia"):
        QueuesSpec.model_validate(changed)


DISPATCHING = {
    **SPEC,
    "flavors": {**SPEC["flavors"], "far": {}},
    "clusters": {name: {"secret": f"{name}-kubeconfig", "promises": {GPU: 2}} for name in ("west", "east")},
    "managers": ["multikueue"],
    "cluster_queues": {
        **SPEC["cluster_queues"],
        "far": {"quotas": {"far": {GPU: {"nominal": 4}}}, "clusters": ["west", "east"]},
    },
    "local_queues": {**SPEC["local_queues"], "b-far": {"tenant": "team-b", "cluster_queue": "far"}},
}


def test_a_queue_that_dispatches_waits_for_its_worker_clusters() -> None:
    def program() -> None:
        Queues("queues", QueuesArgs(spec=QueuesSpec.model_validate(DISPATCHING), node_selectors=SELECTORS))

    made = build(program)
    queue = made.one("ClusterQueue", "queues-cluster-far")
    check = made.one("AdmissionCheck", "queues-dispatch-check-far")
    config = made.one("MultiKueueConfig", "queues-dispatch-far")
    assert config.inputs["spec"] == {"clusters": ["west", "east"]}  # the order counts
    assert made.depends_on(queue, check)
    assert made.depends_on(check, config)
    assert made.depends_on(config, made.one("MultiKueueCluster", "queues-worker-east"))


def test_a_manager_cluster_writes_only_in_the_namespaces_of_queue_tenants() -> None:
    frameworks = QueuesSpec.model_validate(
        {**DISPATCHING, "frameworks": [FrameworkName.JOB, FrameworkName.POD]}
    ).queued_kinds
    account = manager_account("multikueue", "kueue-system", frameworks, ["team-a", "team-b"])
    everywhere = {verb for rule in account.rules if rule.namespace is None for verb in rule.verbs}
    assert everywhere == {"get", "list", "watch"}
    written = {(rule.namespace, rule.resources) for rule in account.rules if "create" in rule.verbs}
    resources = ("workloads", "jobs", "pods")
    assert written == {(tenant, (each,)) for tenant in ("team-a", "team-b") for each in resources}


@pytest.mark.parametrize(
    ("frameworks", "most"), [([FrameworkName.JOB], 1), ([FrameworkName.JOB, FrameworkName.POD], 5)]
)
def test_the_quota_of_worker_clusters_counts_here_only_for_pods(frameworks: list[FrameworkName], most: int) -> None:
    """A dispatched pod stays in the manager cluster with a scheduling gate."""
    queues = QueuesSpec.model_validate({**DISPATCHING, "frameworks": frameworks})
    assert admissible_by_tenant(queues, GPU)["team-b"] == most


def test_a_local_queue_moves_by_replacement(graph: Graph) -> None:
    queue = graph.one("LocalQueue", "local-queues-a-two")
    assert list(queue.request.replaceOnChanges) == ["spec.clusterQueue"]
    assert queue.request.deleteBeforeReplace


def test_each_object_waits_for_what_it_names(graph: Graph) -> None:
    queue = graph.one("ClusterQueue", "queues-cluster-two")
    for kind, name in (
        ("ResourceFlavor", "queues-flavor-any"),
        ("ResourceFlavor", "queues-flavor-l4"),
        ("Cohort", "queues-cohort-lab"),
    ):
        assert graph.depends_on(queue, graph.one(kind, name))
    assert graph.depends_on(graph.one("LocalQueue", "local-queues-a-two"), queue)


def test_what_a_tenant_may_be_handed_adds_up_over_its_queues_once_each() -> None:
    assert admissible_by_tenant(spec(), GPUMEM) == {"team-a": 3000 + 24576 + 1000}
    assert admissible_by_tenant(spec(), GPU) == {"team-a": 1 + (1 + 2) + 4, "team-b": 1}
    assert admissible_by_tenant(spec(), "example.com/other") == {}
