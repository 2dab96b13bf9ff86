from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tenancy.host_memory.oom import PodState, badness_pages, eviction_order
from tenancy.host_memory.pool import HostMemoryPool
from tenancy.host_memory.proof import (
    all_at_peak,
    bursts,
    exposures,
    needed_threshold_mib,
    outranked,
    remedies,
    victims,
)
from tests.support.memory_pools import CLICKHOUSE, INFERENCE, MICROVM, NODE_4

PRIORITIES = {"homelab-critical": 100_000, "homelab-disposable": -1000}
SIZES = st.integers(min_value=1, max_value=60_000)


@st.composite
def pools(draw: st.DrawFn) -> HostMemoryPool:
    steady, peak, limit = sorted(draw(st.tuples(SIZES, SIZES, SIZES)))
    workload = replace(
        INFERENCE, request_mib=draw(st.integers(1, limit)), steady_mib=steady, peak_mib=peak, limit_mib=limit
    )
    least = draw(st.integers(min_value=1, max_value=4096))
    victim = replace(MICROVM, resident_least_mib=least, resident_most_mib=least + draw(st.integers(0, 4096)))
    return replace(NODE_4, workloads=(workload,), disposable=(victim,), guard=draw(st.booleans()))


@given(pools(), st.data())
def test_where_nobody_is_exposed_the_kernel_prefers_a_victim_in_every_state(
    pool: HostMemoryPool, data: st.DataObject
) -> None:
    """The policy pack checks only the extreme states of a node. The test checks random states too."""
    if exposures(pool):
        return
    workload, victim = pool.workloads[0], pool.disposable[0]
    most = workload.limit_mib if pool.guard else workload.peak_mib
    held = data.draw(st.integers(min_value=0, max_value=most))
    victim_held = data.draw(st.integers(victim.resident_least_mib, victim.resident_most_mib))
    for total_mib in pool.totals_mib:
        own = badness_pages(held, pool.oom_score_adj(workload), total_mib)
        assert own < badness_pages(victim_held, pool.victim_adj(victim), total_mib)


@given(pools(), st.data())
def test_where_nobody_is_outranked_the_kubelet_takes_a_victim_first_in_every_state(
    pool: HostMemoryPool, data: st.DataObject
) -> None:
    values = {name: data.draw(st.integers(-2, 2)) for name in PRIORITIES}
    if outranked(pool, values):
        return
    workload, victim = pool.workloads[0], pool.disposable[0]
    states = [
        PodState(
            name="workload",
            resident_mib=data.draw(st.integers(0, workload.limit_mib)),
            request_mib=workload.request_mib,
            priority=values[workload.priority],
        ),
        PodState(
            name="victim",
            resident_mib=data.draw(st.integers(victim.resident_least_mib, victim.resident_most_mib)),
            priority=values[victim.priority],
        ),
    ]
    assert eviction_order(states)[0] == states[1:]


@given(pools())
def test_each_remedy_is_the_least_that_is_enough(pool: HostMemoryPool) -> None:
    pool = replace(pool, guard=False)
    workload, victim = pool.workloads[0], pool.disposable[0]
    if not exposures(pool):
        return
    found = remedies(pool, workload)
    if found.request_mib is not None:
        fits = [
            exposures(replace(pool, workloads=(replace(workload, request_mib=mib),)))
            for mib in (found.request_mib - 1, found.request_mib)
        ]
        assert fits[0]
        assert not fits[1]
    if found.resident_least_mib is not None:
        fits = [
            exposures(replace(pool, disposable=(replace(victim, resident_least_mib=mib, resident_most_mib=mib),)))
            for mib in (found.resident_least_mib - 1, found.resident_least_mib)
        ]
        assert fits[0]
        assert not fits[1]


def test_a_victim_is_always_there_and_always_above_its_request() -> None:
    changed = [replace(MICROVM, pods_least=0), replace(MICROVM, request_mib=512), replace(MICROVM, request_mib=511)]
    assert [bool(victims(replace(NODE_4, disposable=(d,)))) for d in changed] == [False, False, True]


def test_a_burst_counts_the_victims_that_make_room_for_it() -> None:
    crowded = replace(NODE_4, disposable=(replace(MICROVM, pods_most=60),))
    (burst,) = bursts(crowded)
    assert (burst.total_mib, burst.short_mib, burst.victims_killed) == (25_600, 0, 24)


def test_the_coincidence_of_all_peaks_is_stated() -> None:
    three = tuple(
        replace(INFERENCE, name=name, steady_mib=1000, peak_mib=25_000, limit_mib=26_000) for name in ("a", "b", "c")
    )
    pool = replace(NODE_4, workloads=three)
    assert [burst.short_mib for burst in bursts(pool)] == [0] * 6
    assert all_at_peak(pool).short_mib == 75_000 - 62_464


def test_the_kubelet_has_time_where_the_threshold_holds_an_interval_of_growth_and_the_kill() -> None:
    assert needed_threshold_mib(NODE_4) == 11 * 1024


def test_kills_one_by_one_need_a_larger_threshold_but_never_more_than_the_growth() -> None:
    slow = replace(INFERENCE, growth_mib_per_second=128)
    crowded = replace(NODE_4, workloads=(slow, CLICKHOUSE), disposable=(replace(MICROVM, pods_most=40),))
    assert needed_threshold_mib(crowded) == 11 * 128 + 3 * (1280 - 512)
    faster = replace(crowded, workloads=(INFERENCE, CLICKHOUSE))
    assert needed_threshold_mib(faster) == INFERENCE.burst_mib
