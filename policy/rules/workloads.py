"""Rules over the workloads that ask for gpumem: each within its seat, its device and its pool."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from policy.finding import UNREADABLE, Finding, each, unproven
from policy.graph import Claim, Graph, is_gpumem, queue_of, runs_pods
from policy.objects import Object, text
from policy.unknown import is_unknown, unknowns
from tenancy import names
from tenancy.ledger import Ledger, Seat
from tenancy.quantity import QuantityError, whole
from tenancy.workload import TEMPLATES, at, containers_of, given, pod_request, pods_of, surge_of

# Components that declare objects of what they read; while that is unknown their objects are not in the graph.
_RENDERERS = {"ConfigFile", "ConfigGroup", "Chart", "Directory"}
# Kinds of which rules read the whole; a Patch shows a part.
_READ_WHOLE = {*TEMPLATES, "ResourceQuota", "ClusterQueue", "Cohort", "Role", "ClusterRole"}
# Custom kinds that name gpumem without running pods.
_RUN_NOTHING = {"ClusterQueue", "Cohort"}
# Fields under which a foreign kind keeps its pods; unknown, they may hide a request.
_STRUCTURE = {"spec", "template", "containers", "initContainers", "resources", "limits", "requests", "values"}


_Scaled = tuple[str, str, str]  # namespace, kind, name


def judgeable(graph: Graph) -> Iterator[Finding]:
    """What may ask for gpumem is in the graph in a form that can be counted."""
    yield from graph.unread_claims
    yield from each((o for o in graph.objects if not runs_pods(o)), _judgeable)


def _judgeable(found: Object) -> Iterator[Finding]:
    changed = found.kind.removesuffix("Patch")
    if changed != found.kind and (changed in _READ_WHOLE or (changed == "ConfigMap" and found.name == names.LEDGER)):
        yield unproven(found, f"it changes a {changed} that the graph does not hold; declare the whole object")
    elif found.kind in _RENDERERS and any(unknowns(found.manifest)):
        yield unproven(found, "the objects it declares are not in the graph while its input is unknown")
    elif found.kind.endswith("List") and is_unknown(found.manifest.get("items")):
        yield unproven(found, "its items are unknown until the update")
    elif _may_run_pods(found) and _names_gpumem(found.manifest):
        yield unproven(
            found,
            f"it asks for gpumem in a way that is not counted; only {', '.join(sorted(TEMPLATES))} are. Declare these, "
            "or render the chart with helm.v4.Chart",
        )


def _may_run_pods(found: Object) -> bool:
    """A custom kind or a Helm release may; of the built-in ones only those that are counted, and their PodTemplate."""
    built_in = "." not in found.group or (found.group.endswith(".k8s.io") and not found.group.endswith(".x-k8s.io"))
    return found.kind == "PodTemplate" if built_in else found.kind not in _RUN_NOTHING


def _names_gpumem(value: Any, field: str = "") -> bool:
    """Whether a map within names gpumem as a key. Raises UnprovenError where the unknown may hide one."""
    if is_unknown(value):
        return field in _STRUCTURE and bool(value)
    if isinstance(value, dict):
        return any(is_gpumem(key) or _names_gpumem(item, key) for key, item in value.items())
    return isinstance(value, list) and any(_names_gpumem(item, field) for item in value)


def device(graph: Graph) -> Iterator[Finding]:
    """No pod asks for more than one device of its pool offers, or than its gpu-count of devices, evenly."""
    yield from each(graph.claims, lambda claim: _device(graph, claim))


def _device(graph: Graph, claim: Claim) -> Iterator[Finding]:
    pools = graph.reachable_pools(claim.pod_spec)
    counted = claim.resource.removesuffix(names.GPUMEM_SUFFIX) + names.GPU_COUNT_SUFFIX
    count = max(pod_request(claim.pod_spec, counted), 1)
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
    elif seat is None and not _is_queued(ledger, workload):
        yield Finding(
            f"{claim}: asks for {claim.request_mib} MiB without a seat; add residents.{workload.name}: "
            f"{{tenant: {workload.namespace}, gpumem_mib: {claim.request_mib}, pool: …}} to the platform's stack",
            claim.urn,
        )
    elif seat is not None:
        if claim.request_mib > seat.gpumem_mib:
            yield Finding(
                f"{claim}: a pod asks for {claim.request_mib} MiB, its seat has {seat.gpumem_mib}; lower its limits or "
                f"raise residents.{seat.name}.gpumem_mib",
                claim.urn,
            )
        yield from _pool(graph, claim, seat)


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
        running[seat] += pods
        if running[seat] > seat.replicas:
            yield Finding(
                f"{claim}: with it {running[seat]} pods sit on a seat of {seat.replicas} x {seat.gpumem_mib} MiB; run "
                f"fewer or raise residents.{seat.name}.replicas",
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
    yield from each(graph.claims, _rollout)


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
