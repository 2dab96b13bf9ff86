"""The GPU seat of a memory pool's workload: its class and its nodes."""

from dataclasses import replace

from tenancy import names
from tenancy.ledger import Ledger, Pool, Seat
from tests.support import graphs
from tests.support.graphs import INFERENCE, LEDGER, Program, judge, put

HOST = {"kubernetes.io/hostname": "node-4"}
GPUS = Pool(
    name="gpus",
    node_selector={**HOST, "nvidia.com/gpu.sharing-strategy": "none"},
    nodes=1,
    device_count=1,
    memory_mib=15360,
    reserve_mib=1360,
)


def seated(pool: Pool = GPUS) -> Ledger:
    seat = Seat(name="inference", tenant="inference", pool=pool.name, gpumem_mib=12288)
    return replace(LEDGER, pools=(*LEDGER.pools, pool), seats=(*LEDGER.seats, seat))


def program(ledger: Ledger, *, stamped: str) -> Program:
    """A platform with the stamps of prod: the GPU class for everybody but `inference`, which has one of its own."""
    found = without_residents(ledger)
    for key, operator in (("stamp", "NotIn"), ("stamp tts", "In")):
        selector = [{"key": names.LABEL_NAMESPACE, "operator": operator, "values": ["tts", "inference"]}]
        put(found[key], "spec.matchConstraints.namespaceSelector.matchExpressions", selector)
    put(found["stamp tts"], "spec.mutations", graphs.stamp("", stamped)["spec"]["mutations"])
    return found


def without_residents(ledger: Ledger) -> Program:
    """Whose pods would have to say on which of two pools they run."""
    return {key: found for key, found in graphs.platform(ledger).items() if key not in {s.name for s in LEDGER.seats}}


def test_a_gpu_pod_that_is_stamped_with_its_memory_pools_class_passes() -> None:
    assert judge(program(seated(), stamped=INFERENCE.priority)) == []


def test_a_gpu_pod_that_is_stamped_with_another_class_would_be_denied() -> None:
    assert judge(program(seated(), stamped="tier-2-gpu")) == [
        "memory-gpu: MutatingAdmissionPolicy gpu-tenancy-stamp-priority-tier-2-gpu: stamps tier-2-gpu on inference, "
        "which has a GPU seat; its memory pool knows it by homelab-critical, and the API server would deny its pods; "
        "write admission.tenant_priorities.inference: homelab-critical"
    ]


def test_the_general_stamp_counts_where_no_exception_is_made() -> None:
    reported = judge(without_residents(seated()))
    assert graphs.rules_of(reported) == {"memory-gpu"}
    assert any("gpu-tenancy-stamp-priority: stamps gpu-workload on inference" in line for line in reported)


def test_a_seat_on_other_nodes_than_the_memory_pools_is_refused() -> None:
    elsewhere = replace(GPUS, node_selector={**GPUS.node_selector, "kubernetes.io/hostname": "node-5"})
    assert judge(program(seated(elsewhere), stamped=INFERENCE.priority)) == [
        "memory-gpu: node-4: inference has a seat on pools.gpus, whose nodes have kubernetes.io/hostname node-5, those "
        "of memory_pools.node-4 node-4: no node is both; move residents.inference or the workload"
    ]


def test_a_seat_of_another_tenants_workload_of_that_name_is_another_workload() -> None:
    other = replace(seated().seats[-1], tenant="immich", pool="t4", gpumem_mib=1)
    ledger = replace(LEDGER, seats=(*LEDGER.seats, other))
    assert graphs.rules_of(judge(graphs.platform(ledger))) <= {"resource-quota"}
