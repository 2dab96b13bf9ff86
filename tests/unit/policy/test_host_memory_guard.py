"""The proof of a memory pool rests on the guard: it must be there, and go by the numbers of the proof."""

from dataclasses import replace

import pytest

from tests.support.graphs import NODE_4, host_memory_object, judge, platform, put

WHERE = "DaemonSet gpu-tenancy-system-nodes/memory-guard-node-4"
ENVIRONMENT = "spec.template.spec.containers.0.env"

# The field of the guard, its value, and the sentence.
WRONG = {
    "whom it protects": (
        f"{ENVIRONMENT}.1.value",
        "inference/homelab-critical",
        "PROTECTED is inference/homelab-critical, node-4 is proven with "
        "inference/homelab-critical,signoz/homelab-critical; take it from memory_pools.node-4",
    ),
    "what it measures by": (
        f"{ENVIRONMENT}.2.value",
        "65536",
        "TOTAL_MIB is 65536, node-4 is proven with 62464; take it from memory_pools.node-4",
    ),
    "whom it lets go first": (
        f"{ENVIRONMENT}.3.value",
        "500",
        "VICTIM_OOM_SCORE_ADJ is 500, node-4 is proven with 1000; take it from memory_pools.node-4",
    ),
    "where it runs": (
        "spec.template.spec.nodeSelector",
        {"zone": "b"},
        "its nodes are not those of memory_pools.node-4.node_selector",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_guard_that_goes_by_something_else_proves_nothing(case: str) -> None:
    path, value, sentence = WRONG[case]
    program = platform()
    put(program["guard"], path, value)
    assert judge(program) == [f"memory-guard: {WHERE}: {sentence}"]


def test_a_pool_that_is_proven_with_the_guard_has_one() -> None:
    program = platform()
    del program["guard"]
    assert judge(program) == [
        "memory-guard: node-4: is proven with the guard, and there is no DaemonSet memory-guard-node-4; declare it, or "
        "set memory_pools.node-4.guard: false"
    ]


def test_a_pool_that_is_proven_without_it_needs_none() -> None:
    program = platform()
    del program["guard"]
    workloads = tuple(replace(w, request_mib=w.limit_mib) for w in NODE_4.workloads)
    program["memory pools"] = host_memory_object(replace(NODE_4, guard=False, workloads=workloads))
    assert judge(program) == []


def test_a_consumers_program_needs_none() -> None:
    """It holds the pools as a configuration of the policy only."""
    program = platform()
    del program["guard"], program["memory pools"]
    assert judge(program) == []
