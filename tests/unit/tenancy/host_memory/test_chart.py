from dataclasses import replace

from tenancy.host_memory.chart import host_memory_chart
from tenancy.host_memory.pool import HostMemoryPool, HostMemoryPools
from tests.support.memory_pools import INFERENCE, NODE_4


def chart(pool: HostMemoryPool) -> str:
    return host_memory_chart(HostMemoryPools(pools=(pool,)))


def test_what_does_not_hold_is_not_hidden() -> None:
    three = tuple(
        replace(INFERENCE, name=n, steady_mib=1000, peak_mib=25_000, limit_mib=26_000) for n in ("a", "b", "c")
    )
    assert "  all peaks       75000 (a and b and c): 12536 short (12.2 GiB)\n" in chart(
        replace(NODE_4, workloads=three)
    )
