"""Tests the rule about a workload of a memory pool that also has a GPU seat."""

from dataclasses import replace

import pytest

from tenancy.ledger import AdmissionTerms, Ledger, Pool, Seat
from tests.support import graphs
from tests.support.graphs import LEDGER, Program, judge
from tests.support.memory_pools import INFERENCE

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
