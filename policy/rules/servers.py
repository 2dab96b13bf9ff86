"""The rule on model servers: what a server's own flags claim of a card fits the seat of its pod."""

from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction

from policy.finding import UNREADABLE, Finding
from policy.graph import Graph, PodRequest
from policy.rule import A_RESIDENT, MAIN, Example, rule
from policy.rules.workloads import devices_of
from tenancy.ledger import Pool
from tenancy.quantity import whole
from tenancy.servers import Claim, claims
from tenancy.workload import Manifest, containers_of, map_at

_VLLM = ["vllm", "serve", "Qwen/Qwen3-4B"]
# CUDA shows a process up to this much less of a card than NVML shows us: 14910 of a T4's 15360 MiB.
_SEEN = Fraction(97, 100)


@rule(
    "server-flags",
    Example(f"{MAIN}.command", _VLLM, [*_VLLM, "--gpu-memory-utilization", "0.32"], of=A_RESIDENT),
)
def server_flags(graph: Graph) -> Iterator[Finding]:
    """What the flags and the environment of a model server fix of a card's memory is no more than the seat of its pod.

    A flag or value that is not known gives no finding, and a driver's cap shows the server its seat as the whole card.
    """
    for request in graph.requests:
        with suppress(*UNREADABLE):
            yield from _judged(graph, request)


def _judged(graph: Graph, request: PodRequest) -> Iterator[Finding]:
    reachable = graph.reachable_pools(request.pod_spec)
    pools = [pool for pool in reachable if request.seat is None or pool.name == request.seat.pool]
    if len(pools) != 1 or pools[0].caps:
        return
    for container in containers_of(request.pod_spec):
        asked = map_at(container, "resources", "limits").get(request.resource)
        if asked is not None:
            yield from _of_container(request, pools[0], container, whole(asked) // devices_of(request))


def _of_container(request: PodRequest, pool: Pool, container: Manifest, budget_mib: int) -> Iterator[Finding]:
    is_seat = request.seat is not None and request.seat.gpumem_mib == budget_mib
    for claim in claims(container):
        mib = int(claim.of_card_mib(pool.memory_mib))
        if mib * (_SEEN if claim.share is not None else 1) > budget_mib:
            yield Finding(
                f"{request}: {claim.server} {_claimed(claim, pool, mib)}, "
                f"{'its seat is' if is_seat else 'its container asks for'} {budget_mib}; "
                f"write {claim.written(budget_mib, pool.memory_mib)}",
                request.urn,
            )


def _claimed(claim: Claim, pool: Pool, mib: int) -> str:
    verb = "may take" if claim.is_at_most else "will take"
    return f"{verb} {claim.given}{'' if claim.share is None else f' of {pool.memory_mib}'} = {mib} MiB"
