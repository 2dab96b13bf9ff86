"""Alerts on what the exporter measures: whether it measures, what is free, and who uses more than was declared."""

from collections.abc import Iterator, Sequence

from components.base.manifest import Manifest
from components.monitoring.args import AlertsArgs
from components.monitoring.rules.alert import ONCE, alert, allocatable
from tenancy import names
from tenancy.ledger import Ledger, Pool
from tenancy.units import MIB, TOLERANCE

# As in agents/telemetry/reading.py: nobody acts on an older reading.
FRESH_SECONDS = 30


def rules(args: AlertsArgs) -> Iterator[Manifest]:
    """That on the watchdog's cap only where there is a watchdog."""
    pools = args.ledger.shared_pools
    yield _missing(pools, names.node_agent_namespace(args.cluster.system_namespace), _advertising(args))
    yield _frozen()
    yield _partial()
    yield _implausible()
    yield _unhealthy()
    yield _budgets_stale()
    yield from _below_floor(pools)
    yield _over_budget()
    yield _undeclared(args.ledger)
    if args.recycles_per_hour is not None and args.total_recycles_per_hour is not None:
        yield _capped(args.recycles_per_hour, args.total_recycles_per_hour)
        yield _recycled()


def _advertising(args: AlertsArgs) -> str | None:
    """PromQL: the nodes that pods with a budget may be on; None where seats are claimed."""
    return f"({allocatable(args.ledger.names.gpumem)} > 0)" if args.advertised else None


def _missing(pools: Sequence[Pool], namespace: str, advertising: str | None) -> Manifest:
    """A failed reading is a failed scrape, so that stale, partial and absent telemetry all show as missing devices.

    By node: a node too many must not make up for one that is dead. Their sum says what no node's name is known of. One
    whose labels went keeps its capacity for minutes, and no exporter serves a pool from it: nobody is recycled there.
    """
    devices, free = sum(pool.gpus for pool in pools), names.METRIC_DEVICE_FREE
    exporters = f'kube_pod_info{{namespace="{namespace}", created_by_name="{names.EXPORTER}", node!=""}}'
    blind = [f"(max by (node) ({exporters}) unless on (node) max by (node) ({free}))"]
    if advertising:
        blind.append(f"({advertising} unless on (node) max by (node) ({names.METRIC_POOL_FLOOR}))")
    blind += [
        f"(count by (node) (count by (node, uuid) ({free})) < {pool.device_count} and on (node) {_nodes_of(pool)})"
        for pool in pools
        if pool.device_count > 1
    ]
    named = f"({' or '.join(blind)})"
    few = f"(count(count by (uuid) ({free})) or vector(0)) < {devices}"
    return alert(
        "GpuTelemetryMissing",
        f"{named} or (({few}) unless on () {named})",
        hold="1m",
        severity="critical",
        summary=(
            "{{ if $labels.node }}GPUs of {{ $labels.node }} are not measured, or not as a pool's"
            f"{{{{ else }}}}{{{{ $value }}}} of {devices} GPUs are measured{{{{ end }}}}"
        ),
        description=(
            f"The pools {', '.join(pool.name for pool in pools)} have {devices} devices. Without their telemetry the "
            f"watchdog and the gates do nothing. See the log of {names.EXPORTER} on the nodes that are missing; a node "
            "without one has lost the labels of its pool."
        ),
    )


def _frozen() -> Manifest:
    """A real exporter's age differs by milliseconds from scrape to scrape, also on an idle card. Where only the age
    moves, its figures are not of now if they name a pod that is gone."""
    age, phase = names.METRIC_SAMPLE_AGE, "kube_pod_status_phase"
    stands = f"max by (node) (changes({age}[1m])) == 0 and max by (node) (count_over_time({age}[1m])) >= 3"
    users = f'max by (node, namespace, pod) ({names.METRIC_POD_USED}{{pod!=""}})'
    gone = f"count by (node) ({users} unless on (namespace, pod) {phase}) and on () count({phase}) > 0"
    old = f"max by (node) ({age}) > {FRESH_SECONDS}"
    return alert(
        "GpuTelemetryFrozen",
        f"({stands}) or ({gone}) or ({old})",
        hold="1m",
        severity="critical",
        summary="What is measured on {{ $labels.node }} is not of now",
        description=(
            "Its exporter answers the same again and again, or shows the memory of pods that are gone. The watchdog "
            f"and the gates do not act on it. Restart {names.EXPORTER} there, or end the process that nvidia-smi shows."
        ),
    )


def _partial() -> Manifest:
    return alert(
        "GpuTelemetryPartial",
        f"max by (node, gpu, uuid) ({names.METRIC_UNKNOWN_PROCESSES}) > 0",
        hold="2m",
        severity="warning",
        summary="The use of {{ $value }} processes on GPU {{ $labels.gpu }} of {{ $labels.node }} is not known",
        description=(
            "NVML lists processes without their memory. Who uses too much is not known there: the watchdog recycles "
            "nobody; free memory is measured as ever."
        ),
    )


def _implausible() -> Manifest:
    """Figures that contradict each other: of the device, or of its users together."""
    total, used, free, unattributed, attributed = (
        f"sum by (node, gpu, uuid) ({name})"
        for name in (
            names.METRIC_DEVICE_TOTAL,
            names.METRIC_DEVICE_USED,
            names.METRIC_DEVICE_FREE,
            names.METRIC_UNATTRIBUTED,
            names.METRIC_POD_USED,
        )
    )
    device = f"abs({total} - {used} - {free})"
    users = f"abs(({attributed} or 0 * {used}) + {unattributed} - {used})"
    return alert(
        "GpuTelemetryImplausible",
        f"{device} > {TOLERANCE} * {total} or {users} > {TOLERANCE} * {total}",
        hold="1m",
        severity="critical",
        summary="What is measured of GPU {{ $labels.gpu }} of {{ $labels.node }} contradicts itself",
        description=(
            "{{ $value | humanize1024 }}B are between figures that should agree. The watchdog and the gates believe "
            f"none of them. Compare {names.EXPORTER} with nvidia-smi on the node."
        ),
    )


def _unhealthy() -> Manifest:
    return alert(
        "GpuDeviceUnhealthy",
        f"max by (node, gpu, uuid, fault) ({names.METRIC_UNHEALTHY}) > 0",
        hold="1m",
        severity="critical",
        summary="GPU {{ $labels.gpu }} of {{ $labels.node }} has a fault: {{ $labels.fault }}",
        description=(
            "Its pods go on, and none is placed on it any more: a seat there that restarts waits. Drain the node, "
            "reset the device, and replace it if the fault stays."
        ),
    )


def _budgets_stale() -> Manifest:
    return alert(
        "GpuBudgetsStale",
        f"max by (node) ({names.METRIC_API_AGE}) > 60",
        hold="1m",
        severity="warning",
        summary="The exporter of {{ $labels.node }} has not heard from the API for {{ $value | humanizeDuration }}",
        description=(
            "Pods' names, budgets and the ledger are served as they were then; device memory is measured as ever. See "
            f"the log of {names.EXPORTER} on the node."
        ),
    )


def _nodes_of(pool: Pool) -> str:
    """PromQL: the pool's nodes, as their exporters say, each of which serves its own pool. Without a floor it is 0."""
    return f'max by (node) ({names.METRIC_POOL_FLOOR}{{pool="{pool.name}"}})'


def _below_floor(pools: Sequence[Pool]) -> Iterator[Manifest]:
    guarded = [pool for pool in pools if pool.floor_mib]
    for pool in guarded:
        expression = f"min by (node, gpu, uuid) ({names.METRIC_DEVICE_FREE}) < {pool.floor_mib * MIB}"
        if len(pools) > 1:
            expression += f" and on (node) {_nodes_of(pool)}"
        yield alert(
            "GpuMemoryBelowFloor",
            expression,
            hold="2m",
            stays="15m",
            severity="warning",
            pool=pool.name,
            summary="GPU {{ $labels.gpu }} of {{ $labels.node }} is short of memory",
            description=(
                f"{{{{ $value | humanize1024 }}}}B are free; the floor of pool {pool.name} is {pool.floor_mib} MiB. "
                "Find the pod that uses more than its budget, and lower its use or raise its seat."
            ),
        )


def _over_budget() -> Manifest:
    return alert(
        "GpuPodOverBudget",
        f"max by (namespace, pod) ({names.METRIC_POD_OVER}) > 0",
        hold="15m",
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.pod }} uses {{ $value | humanize1024 }}B more than its budget",
        description=(
            "It has done so for 15 minutes, in memory that nobody else needs yet. Under pressure it is what the "
            "watchdog recycles first. Lower its use, or raise its seat to what it really needs."
        ),
    )


def _undeclared(ledger: Ledger) -> Manifest:
    """Of pods that the API has named, and of tenants that are not on record as users without a budget."""
    on_record = "|".join(sorted(ledger.tenants_without_budget))
    tenants = f', namespace!~"{on_record}"' if on_record else ""
    users = f'sum by (namespace, pod) ({names.METRIC_POD_USED}{{pod!=""{tenants}}})'
    declared = f"max by (namespace, pod) ({names.METRIC_POD_DECLARED})"
    return alert(
        "GpuUndeclaredUser",
        f"{users} > 0 unless on (namespace, pod) {declared}",
        hold="5m",
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.pod }} uses {{ $value | humanize1024 }}B of GPU memory undeclared",
        description=(
            "It reached a GPU without a budget and is on no record, so that nothing counted it before it ran. Give the "
            "tenant a seat, or put it under on_demand or unbudgeted."
        ),
    )


def _capped(of_tenant: int, of_all: int) -> Manifest:
    """The exporter serves the watchdog's journal, since a run of a CronJob is too short to be scraped."""
    return alert(
        "GpuRecycleCapReached",
        f"max by (tenant) ({names.METRIC_TENANT_RECYCLES}) >= {of_tenant} or max({names.METRIC_RECYCLES}) >= {of_all}",
        hold="0s",
        severity="critical",
        summary=(
            "{{ $value }} recycles {{ with $labels.tenant }}of {{ . }} {{ end }}within an hour: "
            f"{names.WATCHDOG} goes no further"
        ),
        description=(
            f"The caps, {of_tenant} an hour of a tenant and {of_all} of all, are there for a workload that runs away "
            "again each time. Scale that one down: kubectl get events -A --field-selector "
            f"reportingComponent={names.WATCHDOG} names it."
        ),
    )


def _recycled() -> Manifest:
    """Of what the journal counts for an hour: more than a moment ago, or a tenant's first. It fires for that moment."""
    recent, moment = names.METRIC_TENANT_RECYCLES, "5m"
    now = f"max by (tenant) ({recent})"
    return alert(
        "GpuPodRecycled",
        f"{now} > min by (tenant) (min_over_time({recent}[{moment}])) or "
        f"({now} > 0 unless on (tenant) max by (tenant) ({recent} offset {moment}))",
        hold="0s",
        severity=ONCE,
        summary=f"{names.WATCHDOG} recycled a pod of {{{{ $labels.tenant }}}}",
        description=(
            "A device was short of memory, and the pod used more than its budget. Its tenant has had {{ $value }} "
            "within an hour: kubectl get events -A --field-selector "
            f"reason={names.EVENT_RECYCLED} says which, by how much, and for whom."
        ),
    )
