"""Tests that what is proven holds in every state, with any number of disposable kinds that may still run."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from tenancy.host_memory.oom import (
    BEST_EFFORT_ADJ,
    PodState,
    burstable_oom_score_adj,
    eviction_order,
    guarded_oom_score_adj,
    victim_oom_score_adj,
)
from tenancy.host_memory.pool import HostMemoryPool
from tenancy.host_memory.proof import all_at_peak, bursts, outranked, requested_mib, victims
from tests.support.memory_pools import INFERENCE, MICROVM, NODE_4
from tests.support.oom_killer import badness_pages

PRIORITIES = {"homelab-critical": 100_000, "homelab-disposable": -1000}


@st.composite
def pools(draw: st.DrawFn) -> HostMemoryPool:
    """Draws a memory pool that the rules `memory-requests`, `memory-limits` and `memory-victim` accept."""
    memory_mib, threshold_mib = draw(st.integers(64, 70_000)), draw(st.integers(1, 32))
    allocatable_mib = draw(st.integers(32, memory_mib - threshold_mib))
    steady, peak, limit = sorted(draw(st.integers(1, allocatable_mib)) for _ in range(3))
    workload = replace(
        INFERENCE, request_mib=draw(st.integers(steady, limit)), steady_mib=steady, peak_mib=peak, limit_mib=limit
    )
    kinds = []
    for number in range(draw(st.integers(1, 3))):
        least = draw(st.integers(min_value=1, max_value=4096))
        kinds.append(
            replace(
                MICROVM,
                name=f"kind-{number}",
                priority=draw(st.sampled_from([*PRIORITIES])),
                pods_most=draw(st.integers(1, 3)),
                resident_least_mib=least,
                resident_most_mib=least + draw(st.integers(0, 4096)),
                request_mib=draw(st.integers(0, min(least, workload.request_mib) - 1)),
            )
        )
    pool = replace(
        NODE_4,
        memory_mib=memory_mib,
        allocatable_mib=allocatable_mib,
        eviction_threshold_mib=threshold_mib,
        workloads=(workload,),
        disposable=tuple(kinds),
    )
    assume(requested_mib(pool) <= allocatable_mib)
    return pool


@given(pools(), st.data())
def test_up_to_the_allocatable_memory_the_kernel_prefers_each_disposable_process(
    pool: HostMemoryPool, data: st.DataObject
) -> None:
    workload, kind = pool.workloads[0], data.draw(st.sampled_from(pool.disposable))
    held = data.draw(st.integers(0, workload.limit_mib))
    # The kubelet computes with the request of the container, which may be a part of the pod's.
    asked = data.draw(st.integers(0, kind.request_mib))
    adj = burstable_oom_score_adj(asked, pool.memory_mib) if asked else BEST_EFFORT_ADJ
    victim_adj = victim_oom_score_adj(pool.victim_request_mib, pool.memory_mib)
    guarded = guarded_oom_score_adj(workload.limit_mib, pool.allocatable_mib, victim_adj)
    for total_mib in (pool.pods_mib, pool.memory_mib):
        own = badness_pages(held, guarded, total_mib)
        assert own < badness_pages(data.draw(st.integers(0, kind.resident_most_mib)), adj, total_mib)


@given(pools(), st.data())
def test_where_nobody_is_outranked_the_kubelet_takes_each_disposable_pod_first(
    pool: HostMemoryPool, data: st.DataObject
) -> None:
    values = {name: data.draw(st.integers(-2, 2)) for name in PRIORITIES}
    workload, kind = pool.workloads[0], data.draw(st.sampled_from(pool.disposable))
    if kind in [disposable for disposable, _ in outranked(pool, values)]:
        return
    states = [
        PodState(
            name="workload",
            resident_mib=data.draw(st.integers(0, workload.limit_mib)),
            request_mib=workload.request_mib,
            priority=values[workload.priority],
        ),
        PodState(
            name="disposable",
            resident_mib=data.draw(st.integers(kind.resident_least_mib, kind.resident_most_mib)),
            request_mib=kind.request_mib,
            priority=values[kind.priority],
        ),
    ]
    assert eviction_order(states)[0] == states[1:]


def test_a_victim_is_always_there_and_always_above_its_request() -> None:
    changed = [replace(MICROVM, pods_least=0), replace(MICROVM, request_mib=512), replace(MICROVM, request_mib=511)]
    assert [bool(victims(replace(NODE_4, disposable=(d,)))) for d in changed] == [False, False, True]


def test_the_coincidence_of_all_peaks_is_stated() -> None:
    three = tuple(
        replace(INFERENCE, name=name, steady_mib=1000, peak_mib=25_000, limit_mib=26_000) for name in ("a", "b", "c")
    )
    pool = replace(NODE_4, workloads=three)
    assert [burst.short_mib for burst in bursts(pool)] == [0] * 6
    assert all_at_peak(pool).short_mib == 75_000 - 62_464
