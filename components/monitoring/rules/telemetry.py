"""Alerts on the exporter's readings: missing or wrong readings, little free memory, and use beyond budgets."""

from collections.abc import Iterator, Sequence

from components.monitoring.alert import ONCE, Alert, Example, allocatable
from components.monitoring.args import AlertsArgs
from tenancy import names
from tenancy.ledger import Ledger, Pool
from tenancy.seconds import FRESH_SECONDS
from tenancy.units import MIB, TOLERANCE


def rules(args: AlertsArgs) -> Iterator[Alert]:
    pools = args.ledger.shared_pools
    yield _missing(pools, names.node_agent_namespace(args.cluster.system_namespace), _advertising(args))
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


def _advertising(args: AlertsArgs) -> str | None:
    """Returns PromQL: the nodes that advertise gpumem. Returns None if seats are claimed."""
    return f"({allocatable(args.ledger.names.gpumem)} > 0)" if args.advertised else None


def _missing(pools: Sequence[Pool], namespace: str, advertising: str | None) -> Alert:
    """Fires for devices without a reading. A failed reading is a failed scrape, so it shows as a missing device too.

    Each node is judged, so that a node too many cannot hide a dead one. The sum covers devices of unknown nodes. A node
    that lost its labels advertises its capacity for minutes, but the watchdog recycles no pod there.
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
    """Fires for an age that stands still, for readings of pods that are gone, and for an old reading.

    The age of a real exporter differs by milliseconds from scrape to scrape, also on an idle device.
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
        summary="The measurements of {{ $labels.node }} are stale",
        description=(
            "Its exporter repeats an old answer, or shows memory of pods that have ended. The watchdog and the gates "
            f"ignore it. Restart {names.EXPORTER} there, or end the process that nvidia-smi shows."
        ),
        fires={f'{names.METRIC_SAMPLE_AGE}{{node="a"}}': "61+0.01x30"},
        silent={f'{names.METRIC_SAMPLE_AGE}{{node="a"}}': "1+0.01x30"},
    )


_PARTIAL = Alert(
    "GpuTelemetryPartial",
    f"max by (node, gpu, uuid) ({names.METRIC_UNKNOWN_PROCESSES}) > 0",
    hold="2m",
    severity="warning",
    summary="The use of {{ $value }} processes on GPU {{ $labels.gpu }} of {{ $labels.node }} is not known",
    description=(
        "NVML lists processes without their memory, so the use by pod is unknown there. The watchdog recycles no pod. "
        "Free memory is still measured."
    ),
    fires={names.METRIC_UNKNOWN_PROCESSES: "1x30"},
    silent={names.METRIC_UNKNOWN_PROCESSES: "1x13 0x16"},
)


def _implausible() -> Alert:
    """Fires if the figures of a device, or of its pods together, contradict each other."""
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
        summary="The measurements of GPU {{ $labels.gpu }} of {{ $labels.node }} contradict each other",
        description=(
            "Figures that should agree differ by {{ $value | humanize1024 }}B. The watchdog and the gates ignore them. "
            f"Compare {names.EXPORTER} with nvidia-smi on the node."
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
            "Its pods continue, and new pods are kept off. A seat there that restarts must wait. Drain the node, reset "
            "the device, and replace it if the fault stays."
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
        "It serves outdated names and budgets of pods, and an outdated ledger. Device memory is still measured. Read "
        f"the log of {names.EXPORTER} on the node."
    ),
    fires={names.METRIC_API_AGE: "61x30"},
    silent={names.METRIC_API_AGE: "60x30"},
)


def _nodes_of(pool: Pool) -> str:
    """Returns PromQL: the pool's nodes. Each exporter serves the floor of its own pool, also if the floor is 0."""
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
            summary="GPU {{ $labels.gpu }} of {{ $labels.node }} is short of memory",
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
        "It has done so for 15 minutes, in memory that no other pod needs yet. Under pressure, the watchdog recycles "
        "it first. Lower its use, or raise its seat to its real need."
    ),
    fires={names.METRIC_POD_OVER: "1x30"},
    silent={names.METRIC_POD_OVER: "1x14 0x15"},
)


def _undeclared(ledger: Ledger) -> Alert:
    """Skips tenants that are on record as users without a budget."""
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
            "It reached a GPU without a budget, and the stack file does not declare it. Give the tenant a seat, or "
            "declare the workload under on_demand or unbudgeted."
        ),
        fires=_used_by("stranger"),
        silent=_used_by(""),
    )


def _unbudgeted_grown(ledger: Ledger) -> Alert:
    """Fires for a tenant with unbudgeted workloads that use more than their record, which the reserve covers.

    The figures name pods and no workloads, so a tenant's workloads count together. An on-demand workload of the same
    tenant may use what it needs.
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
            "That is more than unbudgeted.<name>.measured_mib in the stack file, which the pool's reserve covers. "
            "Measure the workload again, then raise measured_mib and reserve_mib, or give the workload a seat."
        ),
        fires=_used_by("emulator", 200),
        silent=_used_by("emulator", 154),
    )


def _used_by(pod: str, mib: int = 100) -> Example:
    """Returns an example's series: a running pod of that name. Its use is within the tolerance of the figures."""
    labels = f'namespace="{pod}", pod="{pod}"'
    phase = f'kube_pod_status_phase{{{labels}, phase="Running"}}'
    return {f"{names.METRIC_POD_USED}{{{labels}}}": f"{mib * MIB}x30", phase: "1x30"}


def _capped(of_tenant: int) -> Alert:
    """Reads the watchdog's journal from the exporter, because a run of a CronJob is too short to be scraped."""
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
            f"The limit is {of_tenant} recycles an hour, because some workload exceeds its budget again each time. "
            f"Scale it down: kubectl get events -A --field-selector reportingComponent={names.WATCHDOG} names it."
        ),
        fires={names.METRIC_TENANT_RECYCLES: f"{of_tenant}x30"},
        silent={names.METRIC_TENANT_RECYCLES: f"{of_tenant - 1}x30"},
    )


def _recycled() -> Alert:
    """Fires for five minutes after a tenant's recycles of the last hour increased."""
    recent, moment = names.METRIC_TENANT_RECYCLES, "5m"
    now = f"max by (tenant) ({recent})"
    return Alert(
        "GpuPodRecycled",
        f"{now} > min by (tenant) (min_over_time({recent}[{moment}])) or "
        f"({now} > 0 unless on (tenant) max by (tenant) ({recent} offset {moment}))",
        hold="0s",
        severity=ONCE,
        summary=f"{names.WATCHDOG} recycled a pod of {{{{ $labels.tenant }}}}",
        description=(
            "A device was short of memory, and the pod used more than its budget. Its tenant has had {{ $value }} "
            "recycles within an hour. kubectl get events -A --field-selector "
            f"reason={names.EVENT_RECYCLED} shows each pod, its overshoot and the cause."
        ),
        fires={names.METRIC_TENANT_RECYCLES: "0x12 1x17"},
        silent={names.METRIC_TENANT_RECYCLES: "0x5 1x24"},
    )
