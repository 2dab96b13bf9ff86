"""Rules over the workloads that ask for gpumem: each within its seat, its device and its pool."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from policy.finding import UNREADABLE, Finding, each, unproven
from policy.graph import Claim, Graph, queue_of
from policy.objects import Object, text
from tenancy import names
from tenancy.admitted import PodJudge
from tenancy.ledger import Ledger, Seat
from tenancy.quantity import QuantityError, whole
from tenancy.units import MIB
from tenancy.workload import at, containers_of, given, pod_request, pod_template, pods_of, surge_of

_LEAST_IN_BYTES = MIB  # no node has as many MiB of GPU memory
_Scaled = tuple[str, str, str]  # namespace, kind, name


def device(graph: Graph) -> Iterator[Finding]:
    """No pod asks for more than one device of its pool offers, or than its gpu-count of devices, evenly."""
    yield from each(graph.claims, lambda claim: _device(graph, claim))


def _device(graph: Graph, claim: Claim) -> Iterator[Finding]:
    if graph.ledger and _meant_mib(graph.ledger, claim):
        return  # said by the rule on seats
    pools = graph.reachable_pools(claim.pod_spec)
    counted, count = _count_resource(claim), _devices_of(claim)
    share = -(-claim.request_mib // count)
    if claim.request_mib % count:
        yield Finding(
            f"{claim}: a pod asks for {claim.request_mib} MiB on {count} devices, which share it evenly; make it "
            f"{share * count} or change {counted}",
            claim.urn,
        )
    if pools and count > (most := max(pool.device_count for pool in pools)):
        yield Finding(f"{claim}: a pod asks for {count} devices, a node has {most}; lower {counted}", claim.urn)
    if pools and share > max(pool.device_mib for pool in pools):
        largest = max(pools, key=lambda pool: pool.device_mib)
        asked = f"{claim.request_mib} MiB" + (f" on {count} devices, {share} each" if count > 1 else "")
        yield Finding(
            f"{claim}: a pod asks for {asked}, the largest device that it may get ({largest.name}) "
            f"offers {largest.device_mib}; lower its limits",
            claim.urn,
        )


def seats(graph: Graph) -> Iterator[Finding]:
    """Every workload that asks for gpumem has a seat, on the pool where it runs, and keeps to it."""
    ledger = graph.ledger
    if ledger is None:
        return  # said by the rule on the ledger
    seated = [claim for claim in graph.claims if claim.seat is not None and claim.resource == ledger.names.gpumem]
    yield from each(graph.claims, lambda claim: _seat(graph, ledger, claim))
    yield from _replicas(graph, seated)


def _seat(graph: Graph, ledger: Ledger, claim: Claim) -> Iterator[Finding]:
    seat, workload = claim.seat, claim.workload
    if claim.resource != ledger.names.gpumem:
        yield Finding(f"{claim}: asks for {claim.resource}, the ledger's is {ledger.names.gpumem}", claim.urn)
    elif meant := _meant_mib(ledger, claim):
        yield Finding(
            f"{claim}: a pod asks for {claim.request_mib} MiB: {claim.resource} counts MiB and takes no unit; write "
            f"{meant}",
            claim.urn,
        )
    elif seat is None and not claim.request_mib:
        return  # asks for none, as admission reads it
    elif seat is None and workload.namespace in ledger.exempt_namespaces:
        yield Finding(
            f"{claim}: asks for {claim.request_mib} MiB in {workload.namespace}, which is exempt from admission and "
            "has no seats; move it to a tenant's namespace and add it to residents of the platform's stack",
            claim.urn,
        )
    elif seat is None and not _is_queued(ledger, workload):
        yield Finding(
            f"{claim}: asks for {claim.request_mib} MiB without a seat; add residents.{workload.name}: "
            f"{{tenant: {workload.namespace}, gpumem_mib: {claim.request_mib}, pool: …}} to the platform's stack",
            claim.urn,
        )
    elif seat is not None:
        count = _devices_of(claim)
        if claim.request_mib > seat.gpumem_mib * count:
            on = f" on {count} devices" if count > 1 else ""
            yield Finding(
                f"{claim}: a pod asks for {claim.request_mib} MiB{on}, its seat has {seat.gpumem_mib}; lower its "
                f"limits or raise residents.{seat.name}.gpumem_mib",
                claim.urn,
            )
        elif not _is_a_size(graph, ledger, claim):
            yield Finding(
                f"{claim}: a pod asks for {claim.request_mib} MiB on {count} devices, its seat has "
                f"{seat.gpumem_mib} on {seat.replicas}: admission lets in pods as large as a seat alone; ask for "
                f"{seat.gpumem_mib} on each device, or change residents.{seat.name}",
                claim.urn,
            )
        yield from _pool(graph, claim, seat)


def _meant_mib(ledger: Ledger, claim: Claim) -> int:
    """What was meant where somebody wrote bytes, such as 3Gi; 0 for what a node may have."""
    largest = max((pool.node_mib for pool in ledger.shared_pools), default=0)
    return claim.request_mib // MIB if claim.request_mib > max(largest, _LEAST_IN_BYTES) else 0


def _devices_of(claim: Claim) -> int:
    """The devices that a pod's gpumem is spread over."""
    return max(pod_request(claim.pod_spec, _count_resource(claim)), 1)


def _placeable(graph: Graph, claim: Claim) -> int:
    """Its devices, as many of them as a node has."""
    pools = graph.reachable_pools(claim.pod_spec)
    return min([_devices_of(claim), *([max(pool.device_count for pool in pools)] if pools else [])])


def _count_resource(claim: Claim) -> str:
    return claim.resource.removesuffix(names.GPUMEM_SUFFIX) + names.GPU_COUNT_SUFFIX


def _is_a_size(graph: Graph, ledger: Ledger, claim: Claim) -> bool:
    """As admission judges the pods of who does not queue."""
    workload = claim.workload
    template = pod_template(workload.manifest) or {}
    queues = workload.namespace in ledger.queue_tenants
    count = _devices_of(claim)
    if claim.request_mib % count or count > _placeable(graph, claim):
        return True  # said by the rule on devices
    asks = pod_request(claim.pod_spec, claim.resource)  # else it claims its seat's device
    return bool(not asks or queues or PodJudge(ledger, workload.namespace, template).is_a_seat)


def _pool(graph: Graph, claim: Claim, seat: Seat) -> Iterator[Finding]:
    reachable = {pool.name for pool in graph.reachable_pools(claim.pod_spec)}
    if seat.pool not in reachable:
        yield Finding(f"{claim}: its seat is on {seat.pool}, which its nodeSelector rules out", claim.urn)
    elif others := sorted(reachable - {seat.pool}):
        yield Finding(
            f"{claim}: its seat is on {seat.pool}, but it may run on {', '.join(others)} too; give it the nodeSelector "
            f"of pools.{seat.pool}",
            claim.urn,
        )


def _is_queued(ledger: Ledger, workload: Object) -> bool:
    """Kueue counts the Jobs of queue tenants against the queue's quota, which the ledger holds."""
    return (
        workload.kind in ("Job", "CronJob")
        and queue_of(workload) is not None
        and workload.namespace in ledger.queue_tenants
        and any(quota.resource == ledger.names.gpumem for quota in ledger.quotas)
    )


def _replicas(graph: Graph, claims: list[Claim]) -> Iterator[Finding]:
    """All workloads that call a seat theirs run no more pods together than it has replicas."""
    running: dict[Seat, int] = defaultdict(int)
    ceilings = _ceilings(graph)
    for claim in claims:
        try:
            pods = _most_pods(graph, ceilings, claim)
        except UNREADABLE as error:
            yield unproven(claim, error)
            continue
        seat = claim.seat
        assert seat is not None  # noqa: S101 (the caller's)
        running[seat] += pods * _placeable(graph, claim)
        if running[seat] > seat.replicas:
            what = "pods" if _placeable(graph, claim) == 1 else "devices"
            yield Finding(
                f"{claim}: with it {running[seat]} {what} sit on a seat of {seat.replicas} x {seat.gpumem_mib} MiB; "
                f"run fewer or raise residents.{seat.name}.replicas",
                claim.urn,
            )


def _most_pods(graph: Graph, ceilings: Mapping[_Scaled, int], claim: Claim) -> int:
    workload = claim.workload
    pool = graph.ledger.pool(claim.seat.pool) if graph.ledger and claim.seat else None
    pods = pods_of(workload.manifest, nodes=pool.nodes if pool else 0)
    return max(pods, ceilings.get((workload.namespace, workload.kind, workload.name), 0))


def _ceilings(graph: Graph) -> Mapping[_Scaled, int]:
    """The most replicas to which an autoscaler may move a workload; KEDA's default is 100."""
    ceilings: dict[_Scaled, int] = {}
    for scaler, field, default in (
        ("HorizontalPodAutoscaler.autoscaling", "maxReplicas", 0),
        ("ScaledObject.keda.sh", "maxReplicaCount", 100),
    ):
        for found in graph.of(scaler):
            target = at(found.manifest, "spec", "scaleTargetRef")
            scaled = (found.namespace, text(target, "kind") or "Deployment", text(target, "name"))
            ceiling = whole(given(at(found.manifest, "spec"), field, default))
            ceilings[scaled] = max(ceiling, ceilings.get(scaled, 0))
    return ceilings


def rollout(graph: Graph) -> Iterator[Finding]:
    """A rollout of a workload with a budget starts no pod next to those that it replaces."""
    said = graph.ledger is not None  # by the rule on seats, of who has none
    yield from each((claim for claim in graph.claims if claim.seat is not None or not said), _rollout)


def _rollout(claim: Claim) -> Iterator[Finding]:
    surge = surge_of(claim.workload.manifest, nodes=1) if claim.request_mib else 0
    if surge:
        field = "updateStrategy.rollingUpdate" if claim.workload.kind == "DaemonSet" else "strategy.rollingUpdate"
        other = "" if claim.workload.kind == "DaemonSet" else "strategy.type: Recreate, or "
        yield Finding(
            f"{claim}: a rollout runs {surge} more pod of {claim.request_mib} MiB, which has no budget; set {other}"
            f"{field}.maxSurge: 0",
            claim.urn,
        )


def whole_mib(graph: Graph) -> Iterator[Finding]:
    """gpumem is in whole MiB, with a limit, and the request equals it: Kubernetes overcommits no extended resource."""
    yield from each(graph.claims, _whole_mib)


def _whole_mib(claim: Claim) -> Iterator[Finding]:
    for container in containers_of(claim.pod_spec):
        resources = at(container, "resources")
        limit = given(at(resources, "limits"), claim.resource, None)
        request = given(at(resources, "requests"), claim.resource, limit)
        where = f"{claim}: container {container.get('name')}"
        try:
            amounts = [whole(amount) for amount in (request, limit) if amount is not None]
        except QuantityError as error:
            yield Finding(f"{where}: {error}; write {claim.resource} in whole MiB", claim.urn)
            continue
        if any(amount < 0 for amount in amounts):
            yield Finding(f"{where}: {claim.resource} is negative", claim.urn)
        elif amounts and limit is None:
            yield Finding(f"{where}: requests {amounts[0]} MiB without a limit; write the limit alone", claim.urn)
        elif amounts and amounts[0] != amounts[-1]:
            yield Finding(f"{where}: requests {amounts[0]} MiB and limits {amounts[1]}; make them equal", claim.urn)
