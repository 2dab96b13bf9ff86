"""Alerts on what the exporter measures: whether it measures, what is free, and who uses more than was declared."""

from collections.abc import Iterator, Sequence

from components.base.manifest import Manifest
from components.monitoring.args import AlertsArgs
from components.monitoring.rules.alert import alert, allocatable
from tenancy import names
from tenancy.ledger import Ledger, Pool
from tenancy.units import MIB, TOLERANCE


def rules(args: AlertsArgs) -> Iterator[Manifest]:
    """That on the watchdog's cap only where there is a watchdog."""
    pools = args.ledger.shared_pools
    yield _missing(pools)
    yield _frozen()
    yield _partial()
    yield _implausible()
    yield _budgets_stale()
    yield from _below_floor(pools, args.ledger.names.gpumem)
    yield _over_budget()
    yield _undeclared(args.ledger)
    if args.recycles_per_hour is not None:
        yield _capped(args.recycles_per_hour)


def _missing(pools: Sequence[Pool]) -> Manifest:
    """A failed reading is a failed scrape, so that stale, partial and absent telemetry all show as missing devices."""
    devices = sum(pool.gpus for pool in pools)
    return alert(
        "GpuTelemetryMissing",
        f"(count(count by (uuid) ({names.METRIC_DEVICE_FREE})) or vector(0)) < {devices}",
        hold="1m",
        severity="critical",
        summary=f"{{{{ $value }}}} of {devices} GPUs are measured",
        description=(
            f"The pools {', '.join(pool.name for pool in pools)} have {devices} devices. Without their telemetry the "
            f"watchdog and the gates do nothing. See the log of {names.EXPORTER} on the nodes that are missing."
        ),
    )


def _frozen() -> Manifest:
    """A real exporter's age differs by milliseconds from scrape to scrape, also on an idle card. Where only the age
    moves, its figures are not of now if they name a pod that is gone."""
    age, phase = names.METRIC_SAMPLE_AGE, "kube_pod_status_phase"
    stands = f"max by (node) (changes({age}[1m])) == 0 and max by (node) (count_over_time({age}[1m])) >= 3"
    users = f'max by (node, namespace, pod) ({names.METRIC_POD_USED}{{pod!=""}})'
    gone = f"count by (node) ({users} unless on (namespace, pod) {phase}) and on () count({phase}) > 0"
    return alert(
        "GpuTelemetryFrozen",
        f"({stands}) or ({gone})",
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


def _below_floor(pools: Sequence[Pool], resource: str) -> Iterator[Manifest]:
    """With several pools, a node's pool is known by what it advertises: exported by default, as its labels are not."""
    guarded = [pool for pool in pools if pool.floor_mib]
    for pool in guarded:
        expression = f"min by (node, gpu, uuid) ({names.METRIC_DEVICE_FREE}) < {pool.floor_mib * MIB}"
        if len(pools) > 1:
            expression += f" and on (node) {allocatable(resource)} == {pool.node_mib}"
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


def _capped(recycles_per_hour: int) -> Manifest:
    """The exporter serves the watchdog's journal, since a run of a CronJob is too short to be scraped."""
    return alert(
        "GpuRecycleCapReached",
        f"max({names.METRIC_RECYCLES}) >= {recycles_per_hour}",
        hold="0s",
        severity="critical",
        summary=f"{{{{ $value }}}} recycles within an hour: {names.WATCHDOG} recycles nobody any more",
        description=(
            f"The cap of {recycles_per_hour} an hour is there for a workload that runs away again each time. "
            "Scale that one down: kubectl get events -A --field-selector "
            f"reportingComponent={names.WATCHDOG} names it."
        ),
    )
