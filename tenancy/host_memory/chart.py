"""Describes the memory pools as text that operators read before an update.

The text has the statements and the amounts of memory that the policy pack has proved.
"""

from collections.abc import Iterator

from tenancy.host_memory.pool import HostMemoryPool, HostMemoryPools
from tenancy.host_memory.proof import Burst, all_at_peak, bursts, requested_mib


def host_memory_chart(pools: HostMemoryPools) -> str:
    """Returns a paragraph for each memory pool, or "" without memory pools. The policy pack itself decides whether a
    memory pool is safe.
    """
    return "".join("\n" + "\n".join(_lines(pool)) + "\n" for pool in pools.pools)


def _lines(pool: HostMemoryPool) -> Iterator[str]:
    requested = requested_mib(pool)
    yield f"memory pool {pool.name}, MiB of a node: {pool.memory_mib}, {pool.allocatable_mib} of them allocatable"
    yield f"  requested       {requested}, {pool.allocatable_mib - requested} left"
    yield f"  steady state    {pool.steady_mib}, {pool.pods_mib - pool.steady_mib} to burst into"
    for burst in bursts(pool)[:1]:
        yield f"  worst burst     {_burst(pool, burst)}"
    yield f"  all peaks       {_burst(pool, all_at_peak(pool))}"
    if not pool.node_taints:
        yield "  other pods      may run on these nodes too; node_taints would keep them off"


def _burst(pool: HostMemoryPool, burst: Burst) -> str:
    who = " and ".join(workload.name for workload in burst.workloads)
    if burst.short_mib:
        return f"{burst.total_mib} ({who}): {burst.short_mib} short ({burst.short_mib / 1024:.1f} GiB)"
    return f"{burst.total_mib} ({who}), {pool.pods_mib - burst.total_mib} left with every victim gone"
