from hypothesis import given
from hypothesis import strategies as st

from tenancy.host_memory.oom import (
    PodState,
    burstable_oom_score_adj,
    eviction_order,
    guarded_oom_score_adj,
)
from tests.support.oom_killer import Process, badness_pages, kernel_victim

NODE_4 = 62_464
TOTALS = st.integers(min_value=64, max_value=2**22)


def state(name: str, resident: int | None, request: int = 0, priority: int = 0) -> PodState:
    return PodState(name=name, resident_mib=resident, request_mib=request, priority=priority)


def process(name: str, resident: int, adj: int = 0) -> Process:
    return Process(name=name, resident_mib=resident, oom_score_adj=adj)


def test_at_its_peak_the_kernel_kills_what_record_0001_protects() -> None:
    inference = process("inference", 20_480, burstable_oom_score_adj(8192, NODE_4))
    assert kernel_victim([inference, process("microvm", 512, 1000)], NODE_4) == inference
    evicted = state("microvm", 512, priority=-1000)
    assert eviction_order([state("inference", 20_480, 8192, priority=100_000), evicted])[0] == [evicted]


def test_with_the_guard_the_kernel_kills_the_microvm_even_at_the_limit() -> None:
    inference = process("inference", 32_768, guarded_oom_score_adj(32_768, NODE_4))
    microvm = process("microvm", 1, 1000)
    assert kernel_victim([inference, microvm], NODE_4) == microvm


@given(TOTALS, st.data())
def test_the_guards_value_is_the_highest_that_keeps_a_victim_ahead(total_mib: int, data: st.DataObject) -> None:
    limit_mib = data.draw(st.integers(min_value=1, max_value=total_mib))
    victim_adj = data.draw(st.sampled_from([999, 1000]))
    adj = guarded_oom_score_adj(limit_mib, total_mib, victim_adj)
    victim = badness_pages(0, victim_adj, total_mib)
    assert badness_pages(limit_mib, adj, total_mib) < victim <= badness_pages(limit_mib, adj + 1, total_mib)


def test_the_guard_never_takes_a_process_out_of_the_kernels_choice() -> None:
    assert guarded_oom_score_adj(10 * NODE_4, NODE_4) == -999


def test_the_guard_gives_the_lowest_value_where_no_value_changes_a_score() -> None:
    assert badness_pages(0, -999, 3) == badness_pages(0, 1000, 3)
    assert guarded_oom_score_adj(1, 3) == -999


@given(TOTALS, st.integers(min_value=1, max_value=2**22))
def test_what_a_guard_computes_for_a_part_of_the_memory_holds_for_the_whole(part_mib: int, more_mib: int) -> None:
    limit_mib = part_mib // 2
    adj = guarded_oom_score_adj(limit_mib, part_mib)
    total_mib = part_mib + more_mib
    assert badness_pages(limit_mib, adj, total_mib) <= badness_pages(0, 1000, total_mib)
