from components.host_memory import (
    HostMemory,
    HostMemoryArgs,
    HostMemoryPoolSpec,
    host_memory_pools,
    pod_fragments,
)
from tenancy.host_memory.pool import HostMemoryPools
from tests.support.given import SYSTEM, declared

WORKLOAD = {
    "tenant": "ml",
    "priority": "critical",
    "request_mib": 8192,
    "limit_mib": 32768,
    "steady_mib": 5120,
    "peak_mib": 20480,
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


def test_a_disposable_pod_is_best_effort_unless_it_requests_something() -> None:
    asking = pool(disposable={"microvm": VICTIM | {"request_mib": 64}})
    assert pod_fragments(POOL)["microvm"]["resources"] == {}
    assert pod_fragments(asking)["microvm"]["resources"] == {"requests": {"memory": "64Mi"}}
    assert pod_fragments(POOL)["inference"]["resources"].keys() == {"requests", "limits"}


def test_the_pods_of_a_pool_tolerate_its_taints() -> None:
    tainted = pool(node_taints=[{"key": "memory-pool", "value": "node-4"}])
    tolerations = [{"key": "memory-pool", "operator": "Equal", "value": "node-4", "effect": "NoSchedule"}]
    assert [each["tolerations"] for each in pod_fragments(tainted).values()] == [tolerations] * 3
    assert all("tolerations" not in each for each in pod_fragments(POOL).values())
    assert HostMemoryPools.from_data(host_memory_pools({"node-4": tainted}).to_data()) == host_memory_pools(
        {"node-4": tainted}
    )


def test_a_tenants_quota_sums_over_its_workloads_and_pools() -> None:
    twice = {name: pool(node_selector={"kubernetes.io/hostname": name}) for name in ("node-4", "node-5")}
    graph = declared(HostMemory, "memory", HostMemoryArgs(pools=twice, namespace=SYSTEM))
    hard = {q.inputs["metadata"]["namespace"]: q.inputs["spec"]["hard"] for q in graph.all("ResourceQuota")}
    assert hard["ml"] == {"limits.memory": "64Gi", "requests.memory": "16Gi"}
    assert hard["agents"] == {"pods": "48"}
