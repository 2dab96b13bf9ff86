"""The rule over the guard: each pool proven with it has it, with the numbers of the proof."""

from collections.abc import Iterator

from policy.finding import Finding, each
from policy.graph import Graph
from policy.objects import Object
from policy.rule import MAIN, Example, rule
from policy.rules.agents import environment_of
from tenancy import names
from tenancy.host_memory.pool import HostMemoryPool
from tenancy.workload import at, pod_template


@rule(
    "memory-guard",
    Example(f"{MAIN}.env.2.value", "65536", "62464", of="DaemonSet gpu-tenancy-system-nodes/memory-guard-node-4"),
)
def guard(graph: Graph) -> Iterator[Finding]:
    """Every memory pool that is proven with the guard has it on its nodes, with the pool's own numbers."""
    if graph.host_memory is None or not graph.host_memory_objects:
        return  # a consumer's program; the guard is the platform's
    for pool in graph.host_memory.pools:
        if pool.guard:
            yield from _guarded(graph, pool)


def _guarded(graph: Graph, pool: HostMemoryPool) -> Iterator[Finding]:
    name = names.guard(pool.name)
    found = graph.named("DaemonSet.apps", name)
    if found is not None:
        yield from each([found], lambda guard: _agrees(guard, pool))
        return
    yield Finding(
        f"{pool.name}: is proven with the guard, and there is no DaemonSet {name}; declare it, or set "
        f"memory_pools.{pool.name}.guard: false",
        graph.host_memory_objects[0].urn,
    )


def _agrees(guard: Object, pool: HostMemoryPool) -> Iterator[Finding]:
    selected = at(pod_template(guard.manifest) or {}, "spec", "nodeSelector")
    if dict(selected) != dict(pool.node_selector):
        yield Finding(f"{guard}: its nodes are not those of memory_pools.{pool.name}.node_selector", guard.urn)
    given = environment_of(guard)
    wanted = {
        "PROTECTED": ",".join(pool.protected),
        "TOTAL_MIB": str(pool.totals_mib[0]),
        "VICTIM_OOM_SCORE_ADJ": str(pool.least_victim_adj),
    }
    for variable, value in wanted.items():
        if given.get(variable) != value:
            yield Finding(
                f"{guard}: {variable} is {given.get(variable)}, {pool.name} is proven with {value}; take it from "
                f"memory_pools.{pool.name}",
                guard.urn,
            )
