from typing import Any

import pulumi
import pytest
from pydantic import ValidationError

from components.base.manifest import component_type
from components.queues import (
    ClusterQueueSpec,
    LocalQueues,
    LocalQueuesArgs,
    Queues,
    QueuesSpec,
    cluster_queue,
    handed_out,
    tenants_of,
)
from tests.support.engine import Graph, build, names

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
            "flavor_order": ["l4", "any"],
            "cohort": "lab",
            "strategy": "StrictFIFO",
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


def spec() -> QueuesSpec:
    return QueuesSpec.model_validate(SPEC)


@pytest.fixture(scope="module")
def graph() -> Graph:
    def program() -> None:
        tenants = {t: pulumi.ComponentResource(component_type("Tenant"), t, {}) for t in ("team-a", "team-b")}
        queues = Queues("queues", spec())
        opts = pulumi.ResourceOptions(depends_on=[queues])
        LocalQueues("local-queues", LocalQueuesArgs(spec=spec(), tenants=tenants), opts)

    return build(program)


def body(graph: Graph, kind: str, name: str) -> Any:
    return graph.one(kind, name).inputs["spec"]


def test_every_object_has_its_name(graph: Graph) -> None:
    assert names(graph.children(graph.one("Queues"))) == {
        *("queues-flavor-any", "queues-flavor-l4"),
        "queues-cohort-lab",
        *("queues-cluster-one", "queues-cluster-two", "queues-cluster-idle"),
        *("queues-priority-low", "queues-priority-high"),
    }
    assert names(graph.children(graph.one("LocalQueues"))) == {
        *("local-queues-a-one", "local-queues-b-one", "local-queues-a-two", "local-queues-a-two-night"),
    }
    assert {r.inputs["apiVersion"] for r in graph.resources if r.custom} == {"kueue.x-k8s.io/v1beta2"}


def test_a_flavor_has_what_it_adds_to_pods_and_no_more(graph: Graph) -> None:
    assert body(graph, "ResourceFlavor", "queues-flavor-l4") == {"nodeLabels": {"gpu": "l4"}}
    assert body(graph, "ResourceFlavor", "queues-flavor-any") == {
        "tolerations": [
            {"key": GPU, "operator": "Exists", "effect": "NoSchedule"},
            {"key": "team", "operator": "Equal", "value": "ml", "effect": "NoExecute"},
        ]
    }


def test_a_queue_of_one_flavor_is_plain(graph: Graph) -> None:
    assert body(graph, "ClusterQueue", "queues-cluster-one") == {
        "queueingStrategy": "BestEffortFIFO",
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a", "team-b"]}
            ]
        },
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Never"},
        "resourceGroups": [
            {
                "coveredResources": [GPU],
                "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": "1"}]}],
            }
        ],
    }


def test_several_flavors_are_tried_in_their_order_with_canonical_quotas(graph: Graph) -> None:
    two = body(graph, "ClusterQueue", "queues-cluster-two")
    assert two["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
    assert (two["cohortName"], two["queueingStrategy"]) == ("lab", "StrictFIFO")
    assert two["preemption"] == {"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "Any"}
    (group,) = two["resourceGroups"]
    assert group["coveredResources"] == [GPUMEM, GPU]
    l4, anything = group["flavors"]
    assert (l4["name"], anything["name"]) == ("l4", "any")
    assert l4["resources"] == [
        {"name": GPUMEM, "nominalQuota": "24576", "borrowingLimit": "1k"},
        {"name": GPU, "nominalQuota": "4", "borrowingLimit": "0"},
    ]
    assert anything["resources"] == [
        {"name": GPUMEM, "nominalQuota": "3k", "borrowingLimit": "0"},
        {"name": GPU, "nominalQuota": "1", "borrowingLimit": "2", "lendingLimit": "0"},
    ]


def test_flavors_without_an_order_go_by_name() -> None:
    """The engine hands maps on sorted, a file in its own order: what is declared must not depend on the reader."""
    quotas = {"t4": {GPU: {"nominal": 1}}, "l4": {GPU: {"nominal": 1}}}
    manifest = cluster_queue("q", ClusterQueueSpec.model_validate({"quotas": quotas}), ["a"])
    assert [f["name"] for f in manifest["spec"]["resourceGroups"][0]["flavors"]] == ["l4", "t4"]


def test_an_order_names_every_flavor_once() -> None:
    with pytest.raises(ValidationError, match="must name each flavor of quotas once: any"):
        ClusterQueueSpec.model_validate({"quotas": {"any": {GPU: {"nominal": 1}}}, "flavor_order": ["any", "l4"]})


def test_a_queue_without_tenants_selects_no_namespace(graph: Graph) -> None:
    assert body(graph, "ClusterQueue", "queues-cluster-idle")["namespaceSelector"] == {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"}]
    }


def test_a_local_queue_is_its_tenants_door_and_moves_by_replacement(graph: Graph) -> None:
    door = graph.one("LocalQueue", "local-queues-a-two")
    assert door.inputs["metadata"]["namespace"] == "team-a"
    assert door.inputs["spec"] == {"clusterQueue": "two"}
    assert list(door.request.replaceOnChanges) == ["spec.clusterQueue"]
    assert door.request.deleteBeforeReplace


def test_a_workload_priority_has_its_value_beside_the_metadata(graph: Graph) -> None:
    low, high = (graph.one("WorkloadPriorityClass", f"queues-priority-{name}").inputs for name in ("low", "high"))
    assert (low["value"], low["description"]) == (100, "Best effort")
    assert high["value"] == 1000
    assert {"spec", "description"}.isdisjoint(high)


def test_each_object_waits_for_what_it_names(graph: Graph) -> None:
    queue = graph.one("ClusterQueue", "queues-cluster-two")
    for kind, name in (
        ("ResourceFlavor", "queues-flavor-any"),
        ("ResourceFlavor", "queues-flavor-l4"),
        ("Cohort", "queues-cohort-lab"),
    ):
        assert graph.depends_on(queue, graph.one(kind, name))
    assert graph.depends_on(graph.one("LocalQueue", "local-queues-a-two"), queue)


def test_who_may_use_a_queue_follows_from_the_local_queues() -> None:
    assert tenants_of(spec()) == {"one": {"team-a", "team-b"}, "two": {"team-a"}, "idle": set()}


def test_what_a_tenant_may_be_handed_adds_up_over_its_queues_once_each() -> None:
    assert handed_out(spec(), GPUMEM) == {"team-a": 3000 + 24576 + 1000}
    assert handed_out(spec(), GPU) == {"team-a": 1 + (1 + 2) + 4, "team-b": 1}
    assert handed_out(spec(), "example.com/other") == {}
