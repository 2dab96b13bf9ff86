import json

import pytest
from pydantic import ValidationError

from components.admission.host_memory import policies
from components.host_memory import (
    HostMemory,
    HostMemoryArgs,
    HostMemoryPoolSpec,
    host_memory_pools,
    pod_fragments,
    tenants_by_priority,
)
from tenancy import names
from tenancy.host_memory.pool import HostMemoryPools
from tests.support.engine import Graph
from tests.support.given import SYSTEM, declared

WORKLOAD = {
    "tenant": "ml",
    "priority": "critical",
    "request_mib": 8192,
    "limit_mib": 32768,
    "steady_mib": 5120,
    "peak_mib": 20480,
    "growth_mib_per_second": 1024,
}
VICTIM = {
    "tenant": "agents",
    "priority": "disposable",
    "pods_least": 1,
    "pods_most": 24,
    "resident_least_mib": 512,
    "resident_most_mib": 1024,
}
NODE = {"node_selector": {"kubernetes.io/hostname": "node-4"}, "memory_mib": 62464, "allocatable_mib": 62364}


def pool(**changes: object) -> HostMemoryPoolSpec:
    database = {"tenant": "data", "priority": "critical", "request_mib": 5000, "limit_mib": 6000} | {
        "steady_mib": 5000,
        "peak_mib": 5000,
    }
    given = {"workloads": {"inference": WORKLOAD, "database": database}, "disposable": {"microvm": VICTIM}}
    return HostMemoryPoolSpec.model_validate(NODE | given | changes)


POOL = pool()


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(HostMemory, "memory", HostMemoryArgs(pools={"node-4": POOL}, namespace=SYSTEM))


def test_a_workload_reserves_its_steady_state_and_peaks_into_slack() -> None:
    assert pod_fragments(POOL)["inference"] == {
        "nodeSelector": {"kubernetes.io/hostname": "node-4"},
        "priorityClassName": "critical",
        "resources": {"requests": {"memory": "8Gi"}, "limits": {"memory": "32Gi"}},
    }


def test_memory_is_written_as_the_api_writes_it() -> None:
    assert pod_fragments(POOL)["database"]["resources"] == {
        "requests": {"memory": "5000Mi"},
        "limits": {"memory": "6000Mi"},
    }


def test_a_disposable_pod_is_best_effort() -> None:
    assert pod_fragments(POOL)["microvm"] == {
        "nodeSelector": {"kubernetes.io/hostname": "node-4"},
        "priorityClassName": "disposable",
        "resources": {},
    }


def test_a_disposable_pod_requests_what_it_is_declared_to() -> None:
    asking = pool(disposable={"microvm": VICTIM | {"request_mib": 64}})
    assert pod_fragments(asking)["microvm"]["resources"] == {"requests": {"memory": "64Mi"}}


def test_the_classes_belong_to_the_tenants_that_the_pools_name() -> None:
    assert tenants_by_priority({"node-4": POOL, "node-5": POOL}) == {
        "critical": {"ml", "data"},
        "disposable": {"agents"},
    }
    assert tenants_by_priority({}) == {}


def test_the_guard_is_on_and_the_kubelets_defaults_are_its_own() -> None:
    assert (POOL.guard, POOL.eviction_threshold_mib, POOL.eviction_interval_seconds) == (True, 100, 10)


WRONG = {
    "growth that is not told": ("workloads", WORKLOAD | {"growth_mib_per_second": 0}, "growth_mib_per_second: is miss"),
    "fewer victims than always": ("disposable", VICTIM | {"pods_least": 25}, "must be at least pods_least 25 (got 24)"),
    "a victim that shrinks": (
        "disposable",
        VICTIM | {"resident_most_mib": 511},
        "must be at least resident_least_mib 512 (got 511)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_numbers_that_contradict_each_other_are_refused(case: str) -> None:
    part, member, message = WRONG[case]
    with pytest.raises(ValidationError) as refused:
        pool(**{part: {"it": member}})
    assert message in str(refused.value).replace("\n  Value error, ", ": ")


def test_a_threshold_that_the_machine_does_not_hold_back_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"must be at most 64, memory_mib less allocatable_mib \(got 100\)"):
        pool(allocatable_mib=62400)


def test_the_pools_are_written_for_the_policy_pack(graph: Graph) -> None:
    written = graph.one("ConfigMap").inputs
    assert written["metadata"]["namespace"] == SYSTEM
    data = json.loads(written["data"][names.HOST_MEMORY_POOLS_KEY])
    assert HostMemoryPools.from_data(data) == host_memory_pools({"node-4": POOL})
    assert graph.outputs_of(graph.one("Memory")) == {"pools": ["node-4"]}


def test_each_tenant_may_run_of_a_class_what_was_declared(graph: Graph) -> None:
    """A pod of another class is not counted."""
    quotas = {q.inputs["metadata"]["namespace"]: q.inputs for q in graph.all("ResourceQuota")}
    assert {tenant: quota["spec"]["hard"] for tenant, quota in quotas.items()} == {
        "agents": {"pods": "24"},
        "data": {"limits.memory": "6000Mi", "requests.memory": "5000Mi"},
        "ml": {"limits.memory": "32Gi", "requests.memory": "8Gi"},
    }
    assert quotas["ml"]["metadata"]["name"] == "memory-pool-critical"
    assert quotas["ml"]["spec"]["scopeSelector"] == {
        "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["critical"]}]
    }


def test_a_tenants_quota_sums_over_its_workloads_and_pools() -> None:
    twice = {name: pool(node_selector={"kubernetes.io/hostname": name}) for name in ("node-4", "node-5")}
    graph = declared(HostMemory, "memory", HostMemoryArgs(pools=twice, namespace=SYSTEM))
    hard = {q.inputs["metadata"]["namespace"]: q.inputs["spec"]["hard"] for q in graph.all("ResourceQuota")}
    assert hard["ml"] == {"limits.memory": "64Gi", "requests.memory": "16Gi"}
    assert hard["agents"] == {"pods": "48"}


def test_no_limit_range_makes_a_victim_burstable(graph: Graph) -> None:
    assert not graph.all("LimitRange")


def test_each_namespace_of_a_pool_has_a_policy_in_force(graph: Graph) -> None:
    declared_policies = {p.inputs["metadata"]["name"]: p.inputs for p in graph.all("ValidatingAdmissionPolicy")}
    assert declared_policies.keys() == {f"{names.HOST_MEMORY_CLASSES}-{tenant}" for tenant in ("agents", "data", "ml")}
    selected = declared_policies[f"{names.HOST_MEMORY_CLASSES}-ml"]["spec"]["matchConstraints"]["namespaceSelector"]
    assert selected["matchExpressions"][0]["values"] == ["ml"]
    bindings = graph.all("ValidatingAdmissionPolicyBinding")
    assert {b.inputs["spec"]["policyName"] for b in bindings} == declared_policies.keys()
    assert all(b.inputs["spec"]["validationActions"] == ["Deny"] for b in bindings)


def test_what_a_policy_demands_follows_from_who_runs_there() -> None:
    stamp, *judged = policies(host_memory_pools({"node-4": POOL}))
    demands = {p["metadata"]["name"]: p["spec"]["validations"] for p in judged}
    assert {name: len(validations) for name, validations in demands.items()} == {
        f"{names.HOST_MEMORY_CLASSES}-agents": 5,
        f"{names.HOST_MEMORY_CLASSES}-data": 2,
        f"{names.HOST_MEMORY_CLASSES}-ml": 2,
    }
    assert stamp["metadata"]["name"] == names.HOST_MEMORY_STAMP
    assert stamp["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]["values"] == ["agents"]


def test_a_pool_without_victims_changes_no_pod() -> None:
    alone = POOL.model_copy(update={"disposable": {}})
    assert {p["kind"] for p in policies(host_memory_pools({"node-4": alone}))} == {"ValidatingAdmissionPolicy"}
