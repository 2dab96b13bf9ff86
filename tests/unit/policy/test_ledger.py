"""Tests that the rules refuse a ledger with wrong sums, or with seats that do not fit."""

from dataclasses import replace
from typing import Any

import pytest

from policy.rule import an_object
from tenancy import names
from tenancy.ledger import Ledger, QueueQuota, Seat
from tests.support import graphs
from tests.support.graphs import BATCH, GPUMEM, LEDGER, judge, platform, pool, put, seat

LLAMA = "spec.template.spec.containers.0"
COUNTED = "viktorbarzin.me/gpu-count"


def a_seat(name: str, mib: int, replicas: int = 1) -> Seat:
    return Seat(name=name, tenant="immich", pool="t4", gpumem_mib=mib, replicas=replicas)


QUEUED = QueueQuota(queue="mem-cq", flavor="t4-mem", pool="t4", resource=GPUMEM, nominal=6000)

# Each case has a ledger, the rule that it breaks, and a part of the message.
LEDGERS: list[tuple[str, Ledger, str]] = [
    (
        "budgets",
        replace(LEDGER, quotas=(*LEDGER.quotas, QUEUED)),
        "t4: 19300 MiB promised, 14000 advertised (5300 over): mem-cq 6000, llama-swap 5000, …",
    ),
    (
        "physical",
        replace(pool("t4", reserve_mib=15360), seats=(), on_demand=()),
        "t4: a device has 15360 MiB and 15360 of them reserved, which leaves 0",
    ),
    ("physical", pool("t4", reserve_mib=-1), "change pools.t4.reserve_mib"),
    (
        "physical",
        replace(LEDGER, pools=(*LEDGER.pools, replace(BATCH, name="spare", nodes=0))),
        "pools.spare: 0 nodes x 1 devices is no pool",
    ),
    (
        "physical",
        pool("batch", nodes=4, node_selector={names.LABEL_HOSTNAME: "node-4"}),
        "pools.batch: 4 nodes, and its node_selector has kubernetes.io/hostname, which matches one; write nodes: 1, or "
        "select by labels that all its nodes have",
    ),
    (
        "placement",
        replace(pool("t4", device_count=2), seats=(*LEDGER.seats, a_seat("a", 7300), a_seat("b", 7300))),
        "t4: the seats do not fit on 2 devices of 14000 MiB: ",
    ),
    (
        "full-seats",
        replace(pool("t4", device_count=2), seats=(*LEDGER.seats, a_seat("more", 700))),
        "t4: a device may have 14000 MiB promised, and its floor is 1536: 15536 of 15360 (176 over)",
    ),
]


@pytest.mark.parametrize(("rule", "ledger", "message"), LEDGERS)
def test_a_wrong_number_in_the_ledger_breaks_only_its_rule(rule: str, ledger: Ledger, message: str) -> None:
    program = platform(ledger)
    for name in LEDGER.seats if not ledger.seats else ():
        del program[name.name]
    reported = judge(program)
    assert {rule} == graphs.rules_of(reported)
    assert any(message in line for line in reported), reported


def test_a_seat_that_asks_for_no_gpu_by_name_is_a_seat_as_before() -> None:
    """For a driver upgrade, NVIDIA's operator looks for pods that request nvidia.com/gpu (docs/operations.md)."""
    program = platform()
    put(program["llama-swap"], f"{LLAMA}.resources.limits", {GPUMEM: "5000", names.GPU: "0"})
    assert judge(program) == []


def test_a_node_that_several_pools_match_is_refused_with_their_names() -> None:
    node = an_object("v1", "Node", "k8s-node1")
    node["metadata"]["labels"] = dict(LEDGER.pools[0].node_selector)
    more = replace(LEDGER.pools[0], name="more")
    program = platform(replace(LEDGER, pools=(*LEDGER.pools, more))) | {"more": node}
    assert [line for line in judge(program) if "Node k8s-node1" in line] == [
        "physical: Node k8s-node1: matched by pools.t4, pools.more: a node belongs to one pool; narrow a node_selector "
        "or relabel the node"
    ]


@pytest.mark.parametrize(
    ("labels", "status", "told"),
    [
        (
            {names.LABEL_GPU_MEMORY: "12288"},
            {},
            "nvidia.com/gpu.memory says 12288, pools.t4.memory_mib 15360; lower pools.t4.memory_mib to 12288",
        ),
        (
            {names.LABEL_GPU_COUNT: "0"},
            {},
            "nvidia.com/gpu.count says 0, pools.t4.device_count 1; take its labels of pools.t4 away",
        ),
        (
            {},
            {"allocatable": {GPUMEM: "14001"}},
            "status.allocatable advertises 14001 MiB, pools.t4 offers 14000 a node; remove it: reconcile advertises",
        ),
        ({names.LABEL_GPU_MEMORY: "15360"}, {"capacity": {GPUMEM: "14k"}}, None),
    ],
)
def test_a_pool_promises_at_most_what_a_node_of_the_program_shows(
    labels: dict[str, str], status: dict[str, Any], told: str | None
) -> None:
    node = an_object("v1", "Node", "k8s-node1") | {"status": status}
    node["metadata"]["labels"] = {**LEDGER.pools[0].node_selector, **labels}
    reported = [line for line in judge(platform() | {"more": node}) if line.startswith("physical")]
    assert reported == ([f"physical: Node k8s-node1: {told}"] if told else [])


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({GPUMEM: "5000", COUNTED: "2"}, None),
        ({GPUMEM: "4999", COUNTED: "2"}, "a pod asks for 4999 MiB on 2 devices, which share it evenly; make it 5000"),
        ({GPUMEM: "2000", COUNTED: "2"}, "a pod with viktorbarzin.me/gpumem is as large as a seat: ask for 2500 MiB"),
        ({GPUMEM: "7500", COUNTED: "3"}, "a pod asks for 3 devices, a node has 2; lower viktorbarzin.me/gpu-count"),
        ({GPUMEM: "5000"}, "a pod asks for 5000 MiB, its seat has 2500; lower its limits or raise residents."),
    ],
)
def test_a_pod_on_several_devices_has_them_on_one_node_and_uses_them_evenly(
    limits: dict[str, str], message: str | None
) -> None:
    two = seat("llama-swap", gpumem_mib=2500, replicas=3)
    program = platform(replace(two, pools=pool("t4", device_count=2, floor_mib=1).pools))
    put(program["llama-swap"], f"{LLAMA}.resources.limits", limits)
    reported = judge(program)
    assert [line.partition("llama-swap/llama-swap: ")[2][: len(message or "")] for line in reported] == (
        [message] if message else []
    )


def test_a_queued_pod_larger_than_any_device_is_refused_with_the_device() -> None:
    quota = replace(QUEUED, nominal=14500, borrowing=14500)
    opened = replace(LEDGER.local_queues[0], name="team-a-mem", queue="mem-cq")
    ledger = replace(pool("t4", device_count=2, floor_mib=1360), quotas=(*LEDGER.quotas, quota))
    program = platform(replace(ledger, local_queues=(*LEDGER.local_queues, opened)))
    job = graphs.platform()["job"]
    job["metadata"]["labels"] = {names.KUEUE_QUEUE_LABEL: "team-a-mem"}
    put(job, "spec.template", graphs.pod(14001))
    assert judge(program | {"job": job}) == [
        "device: Job team-a/train: a pod asks for 14001 MiB, the largest device that it may get (t4) offers 14000; "
        "lower its limits"
    ]
    put(job, "spec.template", graphs.pod(14000))
    assert judge(program | {"job": job}) == []
    put(job, "spec.template.spec.containers.0.resources.limits", {GPUMEM: "28002", COUNTED: "2"})
    assert judge(program | {"job": job}) == [
        "device: Job team-a/train: a pod asks for 28002 MiB on 2 devices, 14001 each, the largest device that it may "
        "get (t4) offers 14000; lower its limits"
    ]
