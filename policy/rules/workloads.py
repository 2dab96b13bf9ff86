"""Rules on workloads that ask for gpumem: each workload fits its seat, its device and its pool."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from policy.finding import UNREADABLE, Finding, judge_each, unproven
from policy.graph import Graph, PodRequest, is_gpumem, is_queued
from policy.objects import Object, text_at
from policy.rule import A_RESIDENT, MAIN, Example, a_deployment, rule
from policy.unknown import is_unknown
from tenancy import names, reach
from tenancy.ledger import Ledger, Seat
from tenancy.names import GPU
from tenancy.quantity import whole
from tenancy.workload import (
    UnboundedError,
    containers_of,
    map_at,
    max_pods,
    max_surge_pods,
    pod_request,
    pod_template,
    value_or,
)

# The field with the largest number of replicas, and its default.
_SCALERS = {
    "HorizontalPodAutoscaler.autoscaling": ("maxReplicas", 0),
    "ScaledObject.keda.sh": ("maxReplicaCount", 100),
}
_Scaled = tuple[str, str, str]  # namespace, kind, name


_LIMIT = {"viktorbarzin.me/gpumem": "5000"}


@rule(
    "device",
    Example(
        f"{MAIN}.resources.limits",
        {**_LIMIT, "viktorbarzin.me/gpu-count": "2"},
        {**_LIMIT, "viktorbarzin.me/gpu-count": "1"},
        of=A_RESIDENT,
    ),
)
def device(graph: Graph) -> Iterator[Finding]:
    """A pod asks for no more gpumem than one device of its pool offers. A pod with gpu-count asks for equal parts of
    several devices, and no part is larger than a device offers."""
    yield from judge_each(graph.requests, lambda request: _device(graph, request))


def _device(graph: Graph, request: PodRequest) -> Iterator[Finding]:
    pools = graph.reachable_pools(request.pod_spec)
    counted, count = _count_resource(request), devices_of(request)
    share = -(-request.mib // count)
    if request.mib % count:
        yield Finding(
            f"{request}: a pod asks for {request.mib} MiB on {count} devices, which share it evenly; make it "
            f"{share * count} or change {counted}",
            request.urn,
        )
    if pools and count > (most := max(pool.device_count for pool in pools)):
        yield Finding(f"{request}: a pod asks for {count} devices, a node has {most}; lower {counted}", request.urn)
    if pools and share > max(pool.device_mib for pool in pools):
        largest = max(pools, key=lambda pool: pool.device_mib)
        asked = f"{request.mib} MiB" + (f" on {count} devices, {share} each" if count > 1 else "")
        yield Finding(
            f"{request}: a pod asks for {asked}, the largest device that it may get ({largest.name}) "
            f"offers {largest.device_mib}; lower its limits",
            request.urn,
        )


@rule(
    "seats",
    Example(f"{MAIN}.resources.limits", {"viktorbarzin.me/gpumem": "5001"}, _LIMIT, of=A_RESIDENT),
    Example("spec.replicas", 2, 1, of=A_RESIDENT),
)
def seats(graph: Graph) -> Iterator[Finding]:
    """Every workload that asks for gpumem has a seat, selects the seat's pool, and asks for no more than its budget."""
    ledger = graph.ledger
    if ledger is None:
        return  # The rule `ledger` reports a missing ledger.
    seated = [
        request for request in graph.requests if request.seat is not None and request.resource == ledger.names.gpumem
    ]
    yield from judge_each(graph.requests, lambda request: _seat(graph, ledger, request))
    yield from _replicas(graph, seated)


def _seat(graph: Graph, ledger: Ledger, request: PodRequest) -> Iterator[Finding]:
    seat, workload = request.seat, request.workload
    if request.resource != ledger.names.gpumem:
        yield Finding(f"{request}: asks for {request.resource}, the ledger's is {ledger.names.gpumem}", request.urn)
    elif seat is None and not request.mib:
        return  # Admission also treats a request of 0 as no request.
    elif seat is None and workload.namespace in ledger.exempt_namespaces:
        yield Finding(
            f"{request}: asks for {request.mib} MiB in {workload.namespace}, which is exempt from admission and "
            "has no seats; move it to a tenant's namespace and add it to residents of the platform's stack",
            request.urn,
        )
    elif seat is None and not _is_queued(ledger, workload):
        yield Finding(
            f"{request}: asks for {request.mib} MiB without a seat; {_to_a_seat(ledger, request)}", request.urn
        )
    elif seat is not None:
        if _exceeds(request, seat):
            count = devices_of(request)
            on = f" on {count} devices" if count > 1 else ""
            yield Finding(
                f"{request}: a pod asks for {request.mib} MiB{on}, its seat has {seat.gpumem_mib}; lower its "
                f"limits or raise residents.{seat.name}.gpumem_mib",
                request.urn,
            )
        yield from _pool(graph, request, seat)


def judges_the_size(graph: Graph, request: PodRequest) -> bool:
    """Returns True if rules of this module have a finding on the size of the pod. The rule `admission` reports any
    other size that is not the seat's."""
    try:
        found = (*_device(graph, request), *_whole_mib(request))
    except UNREADABLE:
        return True
    return bool(found) or request.seat is None or _exceeds(request, request.seat)


def _exceeds(request: PodRequest, seat: Seat) -> bool:
    count = devices_of(request)
    return seat.devices_per_pod in (1, count) and request.mib > seat.gpumem_mib * count


def _to_a_seat(ledger: Ledger, request: PodRequest) -> str:
    """Returns the change that gives the workload a seat. A name that Pulumi makes up is no name for a resident, because
    the next run would need another."""
    workload, label = request.workload, ledger.names.seat_label
    share = request.mib // devices_of(request)
    if not workload.is_named_anew:
        devices = f", devices_per_pod: {devices_of(request)}" if devices_of(request) > 1 else ""
        entry = f"{{tenant: {workload.namespace}, gpumem_mib: {share}{devices}, pool: …}}"
        return f"add residents.{workload.name}: {entry} to the platform's stack"
    fitting = [seat.name for seat in ledger.seats_of(workload.namespace) if seat.gpumem_mib == share]
    if fitting:
        return (
            f"Pulumi makes up its name anew in each run; write metadata.name: {fitting[0]}, or give its pods the label "
            f"{label}: {fitting[0]}"
        )
    return "Pulumi makes up its name anew in each run; write metadata.name, and add a resident with this name"


def devices_of(request: PodRequest) -> int:
    """Returns the number of devices that each pod asks for. Raises QuantityError."""
    return max(pod_request(request.pod_spec, _count_resource(request)), 1)


def _placeable(graph: Graph, request: PodRequest) -> int:
    pools = graph.reachable_pools(request.pod_spec)
    return min([devices_of(request), *([max(pool.device_count for pool in pools)] if pools else [])])


def _count_resource(request: PodRequest) -> str:
    return request.resource.removesuffix(names.GPUMEM_SUFFIX) + names.GPU_COUNT_SUFFIX


def _pool(graph: Graph, request: PodRequest, seat: Seat) -> Iterator[Finding]:
    reachable = {pool.name for pool in graph.reachable_pools(request.pod_spec)}
    if seat.pool not in reachable:
        ruled_out = f"its seat is on {seat.pool}, which its nodeSelector or nodeAffinity rules out"
        yield Finding(f"{request}: {ruled_out}", request.urn)
    elif others := sorted(reachable - {seat.pool}):
        yield Finding(
            f"{request}: its seat is on {seat.pool}, but it may run on {', '.join(others)} too; give it the "
            f"nodeSelector of pools.{seat.pool}",
            request.urn,
        )


def _is_queued(ledger: Ledger, workload: Object) -> bool:
    """Returns True for a queue tenant's Job if the ledger has gpumem quota for queues. Kueue counts a queue tenant's
    Job against this quota."""
    return (
        is_queued(ledger, workload)
        and workload.namespace in ledger.queue_tenants
        and any(quota.resource == ledger.names.gpumem for quota in ledger.quotas)
    )


def _replicas(graph: Graph, requests: list[PodRequest]) -> Iterator[Finding]:
    """Reports a resident with too few devices for its workloads. All workloads of a resident together must not use more
    devices than the resident's seats have."""
    running: dict[Seat, int] = defaultdict(int)
    ceilings = _ceilings(graph, {request.workload.namespace for request in requests})
    for request in requests:
        try:
            pods = _most_pods(graph, ceilings, request)
        except UNREADABLE as error:
            yield unproven(request, error)
            continue
        seat = request.seat
        assert seat is not None  # noqa: S101 (the caller's)
        running[seat] += pods * _placeable(graph, request)
        if running[seat] > seat.devices:
            what = "pods" if _placeable(graph, request) == 1 else "devices"
            yield Finding(
                f"{request}: with it {running[seat]} {what} sit on a seat of {seat.devices} x {seat.gpumem_mib} MiB; "
                f"run fewer or raise residents.{seat.name}.replicas",
                request.urn,
            )


def _most_pods(graph: Graph, ceilings: Mapping[_Scaled, int], request: PodRequest) -> int:
    workload = request.workload
    pool = graph.ledger.pool(request.seat.pool) if graph.ledger and request.seat else None
    pods = max_pods(workload.manifest, nodes=pool.nodes if pool else 0)
    return max(pods, ceilings.get((workload.namespace, workload.kind, workload.name), 0))


def _ceilings(graph: Graph, namespaces: Collection[str]) -> Mapping[_Scaled, int]:
    """Maps each workload in these namespaces to the largest number of replicas that its autoscaler allows. KEDA's
    default for the largest number of replicas is 100."""
    ceilings: dict[_Scaled, int] = {}
    for scaler, (field, default) in _SCALERS.items():
        for found in (o for o in graph.of(scaler) if not is_unknown(o.namespace) and o.namespace in namespaces):
            target = map_at(found.manifest, "spec", "scaleTargetRef")
            scaled = (found.namespace, text_at(target, "kind") or "Deployment", text_at(target, "name"))
            ceiling = whole(value_or(map_at(found.manifest, "spec"), field, default))
            ceilings[scaled] = max(ceiling, ceilings.get(scaled, 0))
    return ceilings


@rule(
    "gpus",
    Example(f"{MAIN}.resources.limits", {GPU: "2"}, {GPU: "1"}, of=a_deployment("tts", "tts")),
)
def gpus(graph: Graph) -> Iterator[Finding]:
    """The workloads of a tenant without budgets ask for no more GPUs than its on-demand and unbudgeted workloads have.
    No autoscaler scales a workload that the demand gate starts."""
    ledger = graph.ledger
    if ledger is None:
        return
    asked: dict[tuple[str, str], int] = defaultdict(int)
    tenants = _counted_tenants(ledger)
    yield from judge_each(graph.workloads, lambda workload: _gpus(ledger, tenants, asked, workload))
    gated = {each.tenant for each in ledger.on_demand}
    scalers = [each for each in graph.of(*_SCALERS) if not is_unknown(each.namespace) and each.namespace in gated]
    yield from judge_each(scalers, lambda scaler: _scales_what_the_gate_starts(ledger, scaler))


def _counted_tenants(ledger: Ledger) -> set[str]:
    """Returns the tenants whose quota counts GPUs of workloads without a budget."""
    return {t.name for t in ledger.tenants_by_name.values() if not t.observed} & (
        ledger.tenants_without_budget - {*ledger.queue_tenants}
    )


def _gpus(
    ledger: Ledger, tenants: Collection[str], asked: dict[tuple[str, str], int], workload: Object
) -> Iterator[Finding]:
    if is_unknown(workload.namespace) or workload.namespace not in tenants:
        return  # The rule `admission` reports a GPU in an unknown namespace.
    tenant = workload.namespace
    most = ledger.gpus_of(tenant) or 0
    pod_spec = map_at(pod_template(workload.manifest) or {}, "spec")
    for resource in reach.COUNTED_RESOURCES:
        amount = pod_request(pod_spec, resource)
        if not amount:
            continue
        asked[tenant, resource] += amount * _pods_at_once(ledger, workload)
        if asked[tenant, resource] > most:
            keys = [f"on_demand.{each.name}.gpus" for each in ledger.on_demand if each.tenant == tenant]
            keys += [f"unbudgeted.{each.name}.gpus" for each in ledger.unbudgeted if each.tenant == tenant]
            yield Finding(
                f"{workload}: with it the pods of {tenant} ask for {asked[tenant, resource]} {resource}, and the "
                f"tenant's quota has {most}; ask for fewer, or raise {' or '.join(keys)}",
                workload.urn,
            )


def _pods_at_once(ledger: Ledger, workload: Object) -> int:
    """Returns the number of pods that should run. The demand gate starts a workload with `replicas: 0`. The quota holds
    back the later runs of a CronJob that may pile up."""
    try:
        pods = max_pods(workload.manifest, nodes=1)
    except UnboundedError:
        return 1
    gated = {(each.tenant, each.name) for each in ledger.on_demand}
    return max(pods, 1) if (workload.namespace, workload.name) in gated else pods


def _scales_what_the_gate_starts(ledger: Ledger, scaler: Object) -> Iterator[Finding]:
    name = text_at(map_at(scaler.manifest, "spec", "scaleTargetRef"), "name")
    if (scaler.namespace, name) in {(each.tenant, each.name) for each in ledger.on_demand}:
        yield Finding(
            f"{scaler}: scales {name}, which the demand gate starts and stops, and the gate leaves a workload with an "
            f"autoscaler alone; remove it, or on_demand.{name} of the platform's stack",
            scaler.urn,
        )


@rule("rollout", Example("spec.strategy", {"type": "RollingUpdate"}, {"type": "Recreate"}, of=A_RESIDENT))
def rollout(graph: Graph) -> Iterator[Finding]:
    """A rollout of a workload with a budget ends an old pod before it starts the pod's replacement."""
    said = graph.ledger is not None  # The rule `seats` reports workloads without a seat.
    yield from judge_each((request for request in graph.requests if request.seat is not None or not said), _rollout)


def _rollout(request: PodRequest) -> Iterator[Finding]:
    surge = max_surge_pods(request.workload.manifest, nodes=1) if request.mib else 0
    if surge:
        field = "updateStrategy.rollingUpdate" if request.workload.kind == "DaemonSet" else "strategy.rollingUpdate"
        other = "" if request.workload.kind == "DaemonSet" else "strategy.type: Recreate, or "
        yield Finding(
            f"{request}: a rollout runs {surge} more pod of {request.mib} MiB, which has no budget; set {other}"
            f"{field}.maxSurge: 0",
            request.urn,
        )


@rule("whole-mib", Example(f"{MAIN}.resources.requests", {"viktorbarzin.me/gpumem": "4000"}, _LIMIT, of=A_RESIDENT))
def whole_mib(graph: Graph) -> Iterator[Finding]:
    """Each container asks for gpumem in whole MiB by a limit. If the container also has a request for gpumem, the
    request equals the limit, because Kubernetes does not overcommit extended resources."""
    yield from judge_each(graph.requests, _whole_mib)
    yield from judge_each(graph.workloads, lambda workload: _of_the_pod(graph, workload))


def _of_the_pod(graph: Graph, workload: Object) -> Iterator[Finding]:
    """Reports GPUs in the resources of a whole pod, of which Kubernetes takes only CPU, host memory and hugepages."""
    resources = map_at(pod_template(workload.manifest) or {}, "spec", "resources")
    domain = graph.ledger.names if graph.ledger else names.Names("")
    for resource in dict.fromkeys((*map_at(resources, "limits"), *map_at(resources, "requests"))):
        if is_gpumem(resource) or reach.is_gpu_resource(resource, domain):
            yield Finding(
                f"{workload}: the pod's own resources have {resource}, which the API server refuses; move it to the "
                "limits of a container",
                workload.urn,
            )


def _whole_mib(request: PodRequest) -> Iterator[Finding]:
    for container in containers_of(request.pod_spec):
        parts = [map_at(container, "resources", part) for part in ("requests", "limits")]
        asked, limit = (whole(part[request.resource]) if request.resource in part else None for part in parts)
        where = f"{request}: container {container.get('name')}: requests {asked} MiB"
        if asked is not None and limit is None:
            yield Finding(f"{where} without a limit; write the limit alone", request.urn)
        elif asked is not None and asked != limit:
            yield Finding(f"{where} and limits {limit}; make them equal", request.urn)
