"""Tests memory pools that break one rule each."""

import json
from dataclasses import replace
from typing import Any

import pytest

from policy.rule import an_object
from policy.unknown import unknown
from tenancy import names
from tenancy.host_memory.pool import Disposable, HostMemoryPool, HostMemoryPools, Taint, Workload
from tests.support import graphs
from tests.support.graphs import Program, judge, put
from tests.support.memory_pools import CLICKHOUSE, INFERENCE, MICROVM, NODE_4, host_memory_object


def test_a_victim_that_requests_more_than_a_critical_pod_breaks_only_its_rule() -> None:
    large = replace(MICROVM, request_mib=6000, resident_least_mib=6500, resident_most_mib=7000, pods_most=2)
    assert judge(graphs.platform(memory=replace(NODE_4, disposable=(large,)))) == [
        "memory-victim: node-4: agent-microvm requests 6000 MiB; it holds from 6500, and clickhouse requests 5120: "
        "within its request a victim is not evicted first; lower memory_pools.node-4.disposable.agent-microvm."
        "request_mib, best to 0"
    ]


def test_a_second_kind_of_disposable_pods_with_the_protected_class_is_refused() -> None:
    scratch = replace(MICROVM, name="scratch", priority="homelab-critical", resident_least_mib=200)
    assert judge(graphs.platform(memory=replace(NODE_4, disposable=(MICROVM, scratch)))) == [
        "memory-eviction: node-4: the kubelet may evict inference, clickhouse (homelab-critical, 100000) before "
        "scratch (homelab-critical, 100000): both may be above their requests; give "
        "memory_pools.node-4.disposable.scratch.priority a class below 100000",
    ]


def test_a_pool_that_is_not_oversubscribed_needs_no_victim() -> None:
    pinned = replace(INFERENCE, request_mib=32_768)
    pool = replace(NODE_4, workloads=(pinned,), disposable=())
    assert judge(graphs.platform(memory=pool)) == []


def test_memory_pools_that_cannot_be_read_are_refused() -> None:
    program = graphs.platform()
    put(program["memory pools"], "data", {names.HOST_MEMORY_POOLS_KEY: '{"pools": [{"name": "node-4"}]}'})
    reported = judge(program)
    assert graphs.rules_of(reported) == {"memory-pools"}
    assert "ConfigMap gpu-tenancy-system/gpu-tenancy-memory-pools: cannot be proven: " in reported[0]
    program["memory pools"]["data"] = {}
    assert judge(program) == [
        "memory-pools: ConfigMap gpu-tenancy-system/gpu-tenancy-memory-pools: cannot be proven: it has no "
        "memory-pools.json"
    ]


def test_a_memory_pool_of_a_few_mebibytes_is_judged() -> None:
    tiny = replace(NODE_4, memory_mib=3, allocatable_mib=2, eviction_threshold_mib=1)
    assert "memory-limits" in graphs.rules_of(judge(graphs.platform(memory=tiny)))


def test_memory_pools_that_are_unknown_cannot_be_proven() -> None:
    program = graphs.platform()
    program["memory pools"]["data"] = graphs.UNKNOWN
    assert judge(program) == [
        f"memory-pools: ConfigMap gpu-tenancy-system/gpu-tenancy-memory-pools: cannot be proven: {unknown('data')}"
    ]


def test_a_class_of_unknown_value_cannot_be_proven() -> None:
    program = graphs.platform()
    program["homelab-critical"]["value"] = graphs.UNKNOWN
    assert "memory-eviction" in graphs.rules_of(judge(program))


def deployment(member: Workload | Disposable, pool: HostMemoryPool = NODE_4) -> graphs.Manifest:
    resources = {}
    if isinstance(member, Workload):
        resources = {
            "requests": {"memory": f"{member.request_mib}Mi"},
            "limits": {"memory": f"{member.limit_mib}Mi"},
        }
    spec = {
        "nodeSelector": dict(pool.node_selector),
        "priorityClassName": member.priority,
        "containers": [{"name": "main", "image": graphs.IMAGE, "resources": resources}],
    }
    return an_object("apps/v1", "Deployment", member.name, member.tenant, spec={"template": {"spec": spec}})


POD = "spec.template.spec"

# Each case has a field of a memory pool, a wrong value, and the message.
UNLIKE: dict[str, tuple[str, object, str]] = {
    "another class": (
        f"{POD}.priorityClassName",
        None,
        "Deployment inference/inference: priorityClassName is empty, memory_pools.node-4.workloads.inference makes it "
        "homelab-critical; use the platform's output memory",
    ),
    "other nodes": (
        f"{POD}.nodeSelector",
        {"kubernetes.io/hostname": "node-5"},
        "nodeSelector kubernetes.io/hostname is node-5, memory_pools.node-4.workloads.inference makes it node-4",
    ),
    "the request pinned to the limit again": (
        f"{POD}.containers.0.resources.requests",
        {"memory": "32Gi"},
        "its memory request is 32768 MiB, memory_pools.node-4.workloads.inference makes it 8192 MiB",
    ),
    "an unreadable limit": (f"{POD}.containers.0.resources.limits", {"memory": "40GB"}, "cannot be proven: '40GB'"),
    "an unknown limit": (f"{POD}.containers.0.resources", graphs.UNKNOWN, "resources is unknown until the update"),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_a_workload_that_is_not_what_its_pool_says_is_refused(case: str) -> None:
    path, value, sentence = UNLIKE[case]
    program: Program = {"memory pools": host_memory_object(), "inference": deployment(INFERENCE)}
    put(program["inference"], path, value)
    reported = [line for line in judge(program) if line.startswith("memory-workloads: ")]
    assert len(reported) == 1
    assert sentence in reported[0]


def with_init_container(**container: Any) -> graphs.Manifest:
    found = deployment(INFERENCE)
    put(found, f"{POD}.initContainers", [{"name": "route-fix", "image": graphs.IMAGE, **container}])
    return found


def test_an_init_container_is_counted_beside_the_main_containers_and_not_on_top() -> None:
    small = {"requests": {"memory": "32Mi"}, "limits": {"memory": "32Mi"}}
    assert judge(graphs.platform() | {"it": with_init_container(resources=small)}) == []
    sidecar = with_init_container(resources=small, restartPolicy="Always")
    assert [line for line in judge(graphs.platform() | {"it": sidecar}) if "its memory limit is 32800 MiB" in line]


@pytest.mark.parametrize("fields", [{}, {"restartPolicy": "Always"}], ids=["init container", "sidecar"])
def test_a_container_without_a_limit_is_refused_as_admission_denies_its_pod(fields: dict[str, Any]) -> None:
    assert judge(graphs.platform() | {"it": with_init_container(**fields)}) == [
        "memory-workloads: Deployment inference/inference: the memory limit of its container route-fix is missing, "
        "memory_pools.node-4.workloads.inference makes it necessary; use the platform's output memory"
    ]


@pytest.mark.parametrize("member", [INFERENCE, CLICKHOUSE, MICROVM], ids=lambda member: member.name)
def test_a_workload_that_is_what_its_pool_says_is_accepted(member: Workload | Disposable) -> None:
    assert judge(graphs.platform() | {"it": deployment(member)}) == []


def test_a_workload_of_a_pool_with_a_taint_needs_the_toleration() -> None:
    taint = Taint(key="memory-pool", value="node-4", effect="NoSchedule")
    config = {"memory_pools": HostMemoryPools(pools=(replace(NODE_4, node_taints=(taint,)),)).to_data()}
    program: Program = {"inference": deployment(INFERENCE)}
    assert judge(program, config) == [
        "memory-workloads: Deployment inference/inference: tolerations is without the pool's taint, "
        "memory_pools.node-4.workloads.inference makes it memory-pool=node-4:NoSchedule; use the platform's output "
        "memory"
    ]
    put(program["inference"], f"{POD}.tolerations", [{"key": "memory-pool", "operator": "Exists"}])
    assert judge(program, config) == []


def test_a_consumer_is_held_to_the_pools_in_the_packs_configuration() -> None:
    pinned = deployment(INFERENCE)
    put(pinned, f"{POD}.containers.0.resources.requests", {"memory": "24Gi"})
    config = {"memory_pools": HostMemoryPools(pools=(NODE_4,)).to_data()}
    assert judge({"inference": pinned}) == []
    assert judge({"inference": pinned}, config) == [
        "memory-workloads: Deployment inference/inference: its memory request is 24576 MiB, "
        "memory_pools.node-4.workloads.inference makes it 8192 MiB; use the platform's output memory"
    ]
    assert judge({"inference": deployment(INFERENCE)}, config) == []


def test_a_configuration_that_cannot_be_read_is_refused() -> None:
    reported = judge({}, json.loads('{"memory_pools": {"pools": 1}}'))
    assert graphs.rules_of(reported) == {"memory-pools"}
