from dataclasses import replace

from tenancy.host_memory.chart import host_memory_chart
from tenancy.host_memory.pool import HostMemoryPool, HostMemoryPools
from tests.support.memory_pools import CLICKHOUSE, INFERENCE, MICROVM, NODE_4


def chart(pool: HostMemoryPool) -> str:
    return host_memory_chart(HostMemoryPools(pools=(pool,)))


def test_what_does_not_hold_is_not_hidden() -> None:
    three = tuple(
        replace(INFERENCE, name=n, steady_mib=1000, peak_mib=25_000, limit_mib=26_000) for n in ("a", "b", "c")
    )
    assert "  all peaks       75000 (a and b and c): 12536 short (12.2 GiB)\n" in chart(
        replace(NODE_4, workloads=three)
    )
    large = replace(NODE_4, workloads=(replace(INFERENCE, limit_mib=62_365),))
    assert "finds no victim large enough for inference, whose limit is above what is allocatable" in chart(large)
    assert "has no victim to choose" in chart(replace(NODE_4, disposable=(replace(MICROVM, pods_least=0),)))


def test_a_peak_at_the_limit_is_said_to_be_beyond_any_victims_help() -> None:
    full = replace(CLICKHOUSE, peak_mib=6144)
    told = chart(replace(NODE_4, workloads=(INFERENCE, full)))
    assert "  above request   at their peaks: inference by 12288, clickhouse by 1024\n" in told
    assert (
        "  peak at limit   clickhouse 6144: what needs more is killed within its own limit, no victim helps\n" in told
    )
