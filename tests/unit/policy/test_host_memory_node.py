"""Tests the rules about the nodes of a memory pool."""

from dataclasses import replace
from typing import Any

import pytest

from policy.rule import an_object
from tenancy.host_memory.pool import HostMemoryPools, Taint
from tenancy.ledger import AdmissionTerms, Ledger, Pool, Seat
from tests.support import graphs
from tests.support.graphs import LEDGER, Manifest, Program, judge, put
from tests.support.memory_pools import INFERENCE, MICROVM, NODE_4

HOST = {"kubernetes.io/hostname": "node-4"}
GPUS = Pool(
    name="gpus",
    node_selector={**HOST, "nvidia.com/gpu.sharing-strategy": "none"},
    nodes=1,
    device_count=1,
    memory_mib=15360,
    reserve_mib=1360,
)


def seated(pool: Pool = GPUS, *, stamped: str = INFERENCE.priority) -> Ledger:
    seat = Seat(name="inference", tenant="inference", pool=pool.name, gpumem_mib=12288)
    terms = AdmissionTerms(
        gpu_priority="gpu-workload",
        priorities={"gpu-workload": (), stamped: ("inference",)},
        own=(graphs.SYSTEM,),
        tenant_priorities={"inference": stamped} if stamped != "gpu-workload" else {},
    )
    return replace(LEDGER, pools=(*LEDGER.pools, pool), seats=(*LEDGER.seats, seat), admission=terms)


def without_residents(ledger: Ledger) -> Program:
    return {key: found for key, found in graphs.platform(ledger).items() if key not in {s.name for s in LEDGER.seats}}


def test_a_gpu_pod_that_is_stamped_with_its_memory_pools_class_passes() -> None:
    assert judge(without_residents(seated())) == []


@pytest.mark.parametrize("stamped", ["tier-2-gpu", "gpu-workload"])
def test_a_gpu_pod_that_is_stamped_with_another_class_would_be_denied(stamped: str) -> None:
    assert judge(without_residents(seated(stamped=stamped))) == [
        f"memory-gpu: node-4: inference has a GPU seat, and admission sets {stamped} on its pods; the memory pool "
        "knows it by homelab-critical, and the API server would deny its pods; write "
        "admission.tenant_priorities.inference: homelab-critical"
    ]


def test_a_seat_on_other_nodes_than_the_memory_pools_is_refused() -> None:
    elsewhere = replace(GPUS, node_selector={**GPUS.node_selector, "kubernetes.io/hostname": "node-5"})
    assert judge(without_residents(seated(elsewhere))) == [
        "memory-gpu: node-4: inference has a seat on pools.gpus, whose nodes have kubernetes.io/hostname node-5, those "
        "of memory_pools.node-4 node-4: no node is both; move residents.inference or the workload"
    ]


def test_a_seat_of_another_tenants_workload_of_that_name_is_another_workload() -> None:
    other = replace(seated().seats[-1], tenant="immich", pool="t4", gpumem_mib=1)
    ledger = replace(LEDGER, seats=(*LEDGER.seats, other))
    assert graphs.rules_of(judge(graphs.platform(ledger))) <= {"resource-quota"}


def web(memory: dict[str, Any], **spec: Any) -> Manifest:
    container = {"name": "main", "image": graphs.IMAGE, "resources": memory}
    return an_object(
        "apps/v1", "Deployment", "web", "web", spec={"template": {"spec": {"containers": [container], **spec}}}
    )


def memory(request: str | None, limit: str | None) -> dict[str, Any]:
    given = {"requests": request, "limits": limit}
    return {part: {"memory": amount} for part, amount in given.items() if amount is not None}


def affinity(*terms: tuple[str, str, list[str]]) -> Manifest:
    return required(*({"matchExpressions": [{"key": k, "operator": o, "values": v}]} for k, o, v in terms))


def required(*terms: Manifest) -> Manifest:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}}


AWAY = ("kubernetes.io/hostname", "NotIn", ["node-4"])
TAINT = Taint(key="memory-pool", value="node-4", effect="NoSchedule")
STRANGERS: dict[str, tuple[Manifest, str]] = {
    "a request without a limit": (
        web(memory("1Mi", None), nodeSelector=HOST),
        "may exceed its memory request without a limit",
    ),
    "on that node by its label": (
        web(memory("1Gi", "2Gi"), nodeSelector=HOST),
        "asks for the nodes of memory_pools.node-4",
    ),
    "on that node by its name": (
        web(memory("1Gi", "2Gi"), nodeName="node-4"),
        "or change its nodeName, nodeSelector or nodeAffinity, which allows nodes with kubernetes.io/hostname node-4",
    ),
    "on that node by its field": (
        web(
            memory("1Gi", "2Gi"),
            affinity=required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-4"]}]}),
        ),
        "asks for the nodes of memory_pools.node-4",
    ),
    "on that node by one alternative of two": (
        web(
            memory("1Gi", "2Gi"),
            affinity=affinity(("kubernetes.io/hostname", "In", ["node-4"]), ("zone", "In", ["a"])),
        ),
        "Set the memory limit of its containers to their memory request",
    ),
    "by an affinity to it": (
        web(memory("1Gi", "2Gi"), affinity=affinity(("kubernetes.io/hostname", "In", ["node-4", "node-5"]))),
        "declare it under memory_pools.node-4.workloads",
    ),
    "by a toleration of the pool's taint": (
        web(memory("1Gi", "2Gi"), tolerations=[{"key": TAINT.key, "operator": "Exists"}]),
        "or add {key: kubernetes.io/hostname, operator: NotIn, values: [node-4]} to the matchExpressions of its",
    ),
}
LET_IN: dict[str, Manifest] = {
    "any node": web(memory("1Gi", "2Gi")),
    "every taint tolerated": web(memory("1Gi", "2Gi"), tolerations=[{"operator": "Exists"}]),
    "what it requests and no more": web(memory("2Gi", "2Gi"), nodeSelector=HOST),
    "no more beyond than a victim holds": web(memory("1Gi", "1536Mi"), nodeSelector=HOST),
    "nothing reserved": web({}, nodeSelector=HOST),
    "another node": web(memory("1Gi", "2Gi"), nodeSelector={"kubernetes.io/hostname": "node-5"}),
    "any node but these": web(memory("1Gi", "2Gi"), affinity=affinity(AWAY)),
    "nodes without the label": web(
        memory("1Gi", "2Gi"), affinity=affinity(("kubernetes.io/hostname", "DoesNotExist", []))
    ),
}


def judged(manifest: Manifest) -> list[str]:
    config = {"memory_pools": HostMemoryPools(pools=(replace(NODE_4, node_taints=(TAINT,)),)).to_data()}
    return [line for line in judge({"web": manifest}, config) if line.startswith("memory-strangers: ")]


@pytest.mark.parametrize("case", STRANGERS)
def test_an_undeclared_pod_that_chooses_the_pools_nodes_and_may_burst_is_refused(case: str) -> None:
    manifest, message = STRANGERS[case]
    (reported,) = judged(manifest)
    assert "Deployment web/web: " in reported
    assert message in reported


def test_an_undeclared_pod_exceeds_its_request_by_no_more_than_every_kind_of_disposable_pods() -> None:
    large = replace(MICROVM, name="large", resident_least_mib=8192, resident_most_mib=8192)
    pools = HostMemoryPools(pools=(replace(NODE_4, disposable=(large, MICROVM)),)).to_data()
    reported = judge({"web": web(memory("1Gi", "2Gi"), nodeSelector=HOST)}, {"memory_pools": pools})
    assert "The disposable pods of agent-microvm exceed theirs by 512 MiB, so the kernel could" in reported[0]


@pytest.mark.parametrize("case", LET_IN)
def test_a_pod_that_is_killed_after_a_victim_or_chooses_no_node_of_the_pool_passes(case: str) -> None:
    assert judged(LET_IN[case]) == []


def test_a_resident_that_tolerates_the_taint_and_selects_another_gpu_pool_is_not_on_these_nodes() -> None:
    """A node can belong to only one GPU pool."""
    llama = graphs.deployment("llama-swap", "llama-swap", 5000)
    put(llama, "spec.template.spec.nodeSelector", dict(graphs.T4.node_selector))
    put(llama, "spec.template.spec.tolerations", [{"key": TAINT.key, "operator": "Exists"}])
    put(llama, "spec.template.spec.containers.0.resources", {"limits": {graphs.GPUMEM: 5000, "memory": "8Gi"}})
    put(llama, "spec.template.spec.containers.0.resources.requests", {"memory": "2Gi"})
    pools = HostMemoryPools(pools=(replace(NODE_4, node_taints=(TAINT,)),)).to_data()
    assert judge({"it": llama}, {"ledger": seated().to_data(), "memory_pools": pools}) == []
    assert graphs.rules_of(judge({"it": llama}, {"ledger": LEDGER.to_data(), "memory_pools": pools})) == {
        "memory-strangers"
    }
