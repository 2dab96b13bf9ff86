"""Alerts on the exporters' readings: missing or wrong readings, too little free memory, and use beyond budgets."""

from collections.abc import Iterator, Sequence

from components.monitoring.alert import ONCE, Alert, Example, allocatable
from components.monitoring.args import AlertsArgs
from components.monitoring.pod_monitors import SCRAPE_SECONDS
from tenancy import names
from tenancy.ledger import Ledger, Pool
from tenancy.seconds import FRESH_SECONDS
from tenancy.units import MIB, TOLERANCE


def rules(args: AlertsArgs) -> Iterator[Alert]:
    pools = args.ledger.shared_pools
    yield _missing(pools, names.node_agent_namespace(args.cluster.system_namespace), args.ledger.names.gpumem)
    yield _frozen()
    yield _PARTIAL
    yield _implausible()
    yield _unhealthy()
    yield _BUDGETS_STALE
    yield from _below_floor(pools)
    yield _OVER_BUDGET
    yield _undeclared(args.ledger)
    if args.ledger.unbudgeted:
        yield _unbudgeted_grown(args.ledger)
    if args.recycles_per_hour is not None:
        yield _capped(args.recycles_per_hour)
        yield _recycled()


def _missing(pools: Sequence[Pool], namespace: str, gpumem: str) -> Alert:
    """Fires for devices without a reading. If the exporter cannot read the devices of a node, its scrape fails, and the
    readings of these devices are missing too.

    The expression compares each node, so that an additional node cannot hide a missing node. The expression also has a
    sum, so that the alert fires for nodes that Prometheus does not know. A node without its labels still advertises its
    capacity for some minutes. While a node lacks its labels, the watchdog does not recycle pods of the node.
    """
    devices, free = sum(pool.gpus for pool in pools), names.METRIC_DEVICE_FREE
    exporters = f'kube_pod_info{{namespace="{namespace}", created_by_name="{names.EXPORTER}", node!=""}}'
    blind = [
        f"(max by (node) ({exporters}) unless on (node) max by (node) ({free}))",
        f"(({allocatable(gpumem)} > 0) unless on (node) max by (node) ({names.METRIC_POOL_FLOOR}))",
    ]
    blind += [
        f"(count by (node) (count by (node, uuid) ({free})) < {pool.device_count} and on (node) {_nodes_of(pool)})"
        for pool in pools
        if pool.device_count > 1
    ]
    named = f"({' or '.join(blind)})"
    few = f"(count(count by (uuid) ({free})) or vector(0)) < {devices}"
    return Alert(
        "GpuTelemetryMissing",
        f"{named} or (({few}) unless on () {named})",
        hold="1m",
        severity="critical",
        summary=(
            "{{ if $labels.node }}GPUs of {{ $labels.node }} are not measured, or their pool is unknown"
            f"{{{{ else }}}}{{{{ $value }}}} of {devices} GPUs are measured{{{{ end }}}}"
        ),
        description=(
            f"The pools {', '.join(pool.name for pool in pools)} have {devices} devices. Without telemetry, the "
            f"watchdog and the gates do not act on a device. Read the log of {names.EXPORTER} on the missing nodes. A "
            "node that has no exporter has lost the labels of its pool."
        ),
        fires={names.METRIC_DEVICE_FREE: "_x30"},
        silent={names.METRIC_DEVICE_FREE: f"{4000 * MIB}x13 stale {4000 * MIB}x15"},
    )


def _frozen() -> Alert:
    """Fires for a reading with a constant age, for readings of pods that no longer exist, and for an old reading.

    With a working exporter, the age of the reading differs by milliseconds between scrapes, even on an idle device.
    """
    age, phase = names.METRIC_SAMPLE_AGE, "kube_pod_status_phase"
    stands = f"max by (node) (changes({age}[1m])) == 0 and max by (node) (count_over_time({age}[1m])) >= 3"
    users = f'max by (node, namespace, pod) ({names.METRIC_POD_USED}{{pod!=""}})'
    gone = f"count by (node) ({users} unless on (namespace, pod) {phase}) and on () count({phase}) > 0"
    old = f"max by (node) ({age}) > {FRESH_SECONDS}"
    return Alert(
        "GpuTelemetryFrozen",
        f"({stands}) or ({gone}) or ({old})",
        hold="1m",
        severity="critical",
        summary="The GPU memory readings of {{ $labels.node }} are stale",
        description=(
            "The node's exporter repeats an old reading, or reports memory of pods that have ended. The watchdog and "
            f"the gates ignore these readings. Restart {names.EXPORTER} on the node, or end the process that "
            "nvidia-smi shows."
        ),
        fires={f'{names.METRIC_SAMPLE_AGE}{{node="a"}}': "61+0.01x30"},
        silent={f'{names.METRIC_SAMPLE_AGE}{{node="a"}}': "1+0.01x30"},
    )


_PARTIAL = Alert(
    "GpuTelemetryPartial",
    f"max by (node, gpu, uuid) ({names.METRIC_UNKNOWN_PROCESSES}) > 0",
    hold="2m",
    severity="warning",
    summary="The GPU memory of {{ $value }} processes on GPU {{ $labels.gpu }} of {{ $labels.node }} is not known",
    description=(
        "NVML lists these processes without their memory, so the use of each pod on this device is not known. The "
        "watchdog recycles no pod there. The exporter still measures the device's free memory."
    ),
    fires={names.METRIC_UNKNOWN_PROCESSES: "1x30"},
    silent={names.METRIC_UNKNOWN_PROCESSES: "1x13 0x16"},
)


def _implausible() -> Alert:
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
    return Alert(
        "GpuTelemetryImplausible",
        f"{device} > {TOLERANCE} * {total} or {users} > {TOLERANCE} * {total}",
        hold="1m",
        severity="critical",
        summary="The memory figures of GPU {{ $labels.gpu }} of {{ $labels.node }} contradict each other",
        description=(
            "Figures that should agree differ by {{ $value | humanize1024 }}B. The watchdog and the gates ignore this "
            f"device. Compare {names.EXPORTER} with nvidia-smi on the node."
        ),
        fires={names.METRIC_POD_USED: f"{14000 * MIB}x30"},
        silent={names.METRIC_POD_USED: f"{11000 * MIB}x30"},
    )


def _unhealthy() -> Alert:
    fault = f'{names.METRIC_UNHEALTHY}{{node="a", gpu="0", fault="pages-to-retire"}}'
    return Alert(
        "GpuDeviceUnhealthy",
        f"max by (node, gpu, uuid, fault) ({names.METRIC_UNHEALTHY}) > 0",
        hold="1m",
        severity="critical",
        summary="GPU {{ $labels.gpu }} of {{ $labels.node }} has a fault: {{ $labels.fault }}",
        description=(
            "The device's pods continue, and no new pod gets this device. If a pod with a seat restarts there, it "
            "must wait. Drain the node, reset the device, and replace it if the fault stays."
        ),
        fires={fault: "1x30"},
        silent={fault: "0x30"},
    )


_BUDGETS_STALE = Alert(
    "GpuBudgetsStale",
    f"max by (node) ({names.METRIC_API_AGE}) > 60",
    hold="1m",
    severity="warning",
    summary="The exporter of {{ $labels.node }} has had no answer from the API for {{ $value | humanizeDuration }}",
    description=(
        "The exporter serves old names and budgets of pods, and an old ledger. Device memory is still measured. Read "
        f"the log of {names.EXPORTER} on the node."
    ),
    fires={names.METRIC_API_AGE: "61x30"},
    silent={names.METRIC_API_AGE: "60x30"},
)


def _nodes_of(pool: Pool) -> str:
    """Returns PromQL: the pool's nodes. Each exporter serves the floor of its node's pool, even if the floor is 0."""
    return f'max by (node) ({names.METRIC_POOL_FLOOR}{{pool="{pool.name}"}})'


def _below_floor(pools: Sequence[Pool]) -> Iterator[Alert]:
    guarded = [pool for pool in pools if pool.floor_mib]
    for pool in guarded:
        expression = f"min by (node, gpu, uuid) ({names.METRIC_DEVICE_FREE}) < {pool.floor_mib * MIB}"
        if len(pools) > 1:
            expression += f" and on (node) {_nodes_of(pool)}"
        yield Alert(
            "GpuMemoryBelowFloor",
            expression,
            hold="2m",
            stays="15m",
            severity="warning",
            labels={"pool": pool.name},
            summary="The free memory of GPU {{ $labels.gpu }} of {{ $labels.node }} is below the floor",
            description=(
                f"{{{{ $value | humanize1024 }}}}B are free; the floor of pool {pool.name} is {pool.floor_mib} MiB. "
                "Find the pod that uses more than its budget, and lower its use or raise its seat."
            ),
            fires=_with_free(pool, pool.floor_mib - 1),
            silent=_with_free(pool, pool.floor_mib),
        )


def _with_free(pool: Pool, free_mib: int) -> Example:
    used = f"{(pool.memory_mib - free_mib) * MIB}x30"
    free = f"{free_mib * MIB}x30"
    return {names.METRIC_DEVICE_FREE: free, names.METRIC_DEVICE_USED: used, names.METRIC_POD_USED: used}


_OVER_BUDGET = Alert(
    "GpuPodOverBudget",
    f"max by (namespace, pod) ({names.METRIC_POD_OVER}) > 0",
    hold="15m",
    severity="warning",
    summary="{{ $labels.namespace }}/{{ $labels.pod }} uses {{ $value | humanize1024 }}B more than its budget",
    description=(
        "The pod has used this memory for 15 minutes, and no other pod needs it yet. When the device falls below its "
        "floor, the watchdog may recycle the pod. Lower the pod's use, or raise its seat."
    ),
    fires={names.METRIC_POD_OVER: "1x30"},
    silent={names.METRIC_POD_OVER: "1x14 0x15"},
)


def _undeclared(ledger: Ledger) -> Alert:
    on_record = "|".join(sorted(ledger.tenants_without_budget))
    tenants = f', namespace!~"{on_record}"' if on_record else ""
    users = f'sum by (namespace, pod) ({names.METRIC_POD_USED}{{pod!=""{tenants}}})'
    declared = f"max by (namespace, pod) ({names.METRIC_POD_DECLARED})"
    return Alert(
        "GpuUndeclaredUser",
        f"{users} > 0 unless on (namespace, pod) {declared}",
        hold="5m",
        severity="warning",
        summary=(
            "{{ $labels.namespace }}/{{ $labels.pod }} uses {{ $value | humanize1024 }}B of GPU memory without a budget"
        ),
        description=(
            "The pod reached a GPU without a budget, and the stack file does not declare its workload. Give the "
            "workload a seat, or declare it under on_demand or unbudgeted."
        ),
        fires=_used_by("stranger"),
        silent=_used_by(""),
    )


def _unbudgeted_grown(ledger: Ledger) -> Alert:
    """Fires for a tenant if its unbudgeted workloads use more than the reserve covers (measured_mib).

    The metrics of the exporter have no labels for workloads. Therefore the alert compares the total use of all
    workloads of a tenant. The alert's limit includes need_mib of the tenant's on-demand workloads.
    """
    declared = f"max by (namespace, pod) ({names.METRIC_POD_DECLARED})"
    covered = (*((each.tenant, each.measured_mib) for each in ledger.unbudgeted),)
    needed = (*((each.tenant, each.need_mib) for each in ledger.on_demand),)
    grown = []
    for tenant in sorted({tenant for tenant, _ in covered}):
        mib = sum(mib for name, mib in (*covered, *needed) if name == tenant)
        used = f'sum by (namespace, pod) ({names.METRIC_POD_USED}{{pod!="", namespace="{tenant}"}})'
        most = int(mib * (1 + TOLERANCE)) * MIB
        grown.append(f"sum by (namespace) ({used} unless on (namespace, pod) {declared}) > {most}")
    return Alert(
        "GpuUnbudgetedGrown",
        " or ".join(grown),
        hold="5m",
        severity="warning",
        summary="Unbudgeted workloads of {{ $labels.namespace }} use {{ $value | humanize1024 }}B of GPU memory",
        description=(
            "This is more than unbudgeted.<name>.measured_mib in the stack file, and the pool's reserve covers only "
            "measured_mib. Measure the workload again, then raise measured_mib and reserve_mib, or give the workload "
            "a seat."
        ),
        fires=_used_by("emulator", 200),
        silent=_used_by("emulator", 154),
    )


def _used_by(pod: str, mib: int = 100) -> Example:
    """Returns series for an example: a running pod with this name. The pod's use is small enough that the device's
    figures still agree."""
    labels = f'namespace="{pod}", pod="{pod}"'
    phase = f'kube_pod_status_phase{{{labels}, phase="Running"}}'
    return {f"{names.METRIC_POD_USED}{{{labels}}}": f"{mib * MIB}x30", phase: "1x30"}


def _capped(of_tenant: int) -> Alert:
    """Uses the metric in which the exporter reports the watchdog's journal. Prometheus cannot scrape the watchdog,
    because its runs are too short.
    """
    return Alert(
        "GpuRecycleCapReached",
        f"max by (tenant) ({names.METRIC_TENANT_RECYCLES}) >= {of_tenant}",
        hold="0s",
        severity="critical",
        summary=(
            f"{{{{ $value }}}} recycles of {{{{ $labels.tenant }}}} within an hour: {names.WATCHDOG} pauses for this "
            "tenant"
        ),
        description=(
            f"The limit is {of_tenant} recycles an hour. A workload of the tenant exceeds its budget again after each "
            "recycle. Scale this workload down: kubectl get events -A --field-selector "
            f"reportingComponent={names.WATCHDOG} names it."
        ),
        fires={names.METRIC_TENANT_RECYCLES: f"{of_tenant}x30"},
        silent={names.METRIC_TENANT_RECYCLES: f"{of_tenant - 1}x30"},
    )


def _recycled() -> Alert:
    """Fires for five minutes after the number of a tenant's recycles within the last hour has increased.

    Each exporter reports the number of recycles within the last hour. When a recycle is an hour old, the exporters
    lower the number of recycles in different scrapes. Therefore the expression takes the largest number of all
    exporters, and compares it with earlier largest numbers.
    """
    recent, moment = names.METRIC_TENANT_RECYCLES, "5m"
    now = f"max by (tenant) ({recent})"
    return Alert(
        "GpuPodRecycled",
        f"{now} > min_over_time(({now})[{moment}:{SCRAPE_SECONDS}s]) or "
        f"({now} > 0 unless on (tenant) max by (tenant) ({recent} offset {moment}))",
        hold="0s",
        severity=ONCE,
        summary=f"{names.WATCHDOG} recycled a pod of {{{{ $labels.tenant }}}}",
        description=(
            "A device was below its floor, and the pod used more than its budget. The tenant has had {{ $value }} "
            "recycles within an hour. kubectl get events -A --field-selector "
            f"reason={names.EVENT_RECYCLED} shows each pod, its overshoot and the cause."
        ),
        fires={names.METRIC_TENANT_RECYCLES: "0x12 1x17"},
        silent={names.METRIC_TENANT_RECYCLES: "0x5 1x24"},
    )
