"""Alerts on placement by device, from the extenders' own metrics."""

from collections.abc import Iterator

from components.monitoring.alert import Alert
from components.monitoring.args import AlertsArgs
from tenancy import names
from tenancy.units import MIB


def rules(args: AlertsArgs) -> Iterator[Alert]:
    if not args.places_by_device:
        return
    yield _down(args.cluster.system_namespace)
    yield _drift(args.cluster.system_namespace)
    yield _refused_by_use(min(pool.floor_mib for pool in args.ledger.shared_pools))
    yield _SEAT_HELD
    yield _SEAT_WITHOUT_ROOM
    yield _SEAT_OVERCROWDED


def _down(namespace: str) -> Alert:
    return Alert(
        "GpuSchedulerDown",
        f"absent({names.METRIC_EXTENDER_LEADING} == 1 and {names.METRIC_EXTENDER_READY} == 1)",
        hold="2m",
        severity="critical",
        summary=f"No pod of the Deployment {names.SCHEDULER} places pods",
        description=(
            "No pod of this Deployment is the leader and ready, so new pods with GPU memory wait. Running pods "
            f"continue. Check: kubectl -n {namespace} get pods,lease -l {names.LABEL_NAME}={names.SCHEDULER}, and the "
            "logs of both containers."
        ),
        fires={names.METRIC_EXTENDER_LEADING: "0x30"},
        silent={names.METRIC_EXTENDER_LEADING: "1x12 0 1x16"},
    )


def _drift(namespace: str) -> Alert:
    """The alert leaves out the kind `outside`, because other alerts report memory in use outside of pods."""
    return Alert(
        "GpuPlacementDrift",
        f'max by (kind) ({names.METRIC_EXTENDER_DRIFT}{{kind!="outside"}}) > 0',
        hold="10m",
        severity="warning",
        summary="The extender's cache is wrong about {{ $value }} pods or devices: {{ $labels.kind }}",
        description=(
            "The cache of the extender differs from the pods or their devices. The extender's log names them: "
            f"kubectl -n {namespace} logs -l {names.LABEL_NAME}={names.SCHEDULER} -c extender."
        ),
        fires={f'{names.METRIC_EXTENDER_DRIFT}{{kind="unplaced"}}': "1x30"},
        silent={f'{names.METRIC_EXTENDER_DRIFT}{{kind="outside"}}': "1x30"},
    )


def _refused_by_use(floor_mib: int) -> Alert:
    """Fires if a pod waits although a device has enough memory that is free by the ledger. The alert uses the smallest
    floor of all pools. In a pool with a larger floor, the alert can fail to fire.
    """
    left = f"max by (node, gpu, uuid) ({names.METRIC_EXTENDER_OFFERED} - {names.METRIC_EXTENDER_ALLOCATED})"
    measured = f"max by (uuid) ({names.METRIC_DEVICE_FREE}) - {floor_mib * MIB}"
    waiting = f"max({names.METRIC_EXTENDER_WAITING}) > 0"
    return Alert(
        "GpuPlacementRefusedByUse",
        f"({left} > on (uuid) group_left () ({measured})) and on () ({waiting})",
        hold="10m",
        severity="warning",
        summary=(
            "Pods wait although GPU {{ $labels.gpu }} of {{ $labels.node }} has {{ $value | humanize1024 }}B free by "
            "the ledger"
        ),
        description=(
            "The memory is free by the ledger, but processes use it. A pod uses the device without a budget, or uses "
            "more than its budget. GpuPodOverBudget and GpuUndeclaredUser name the pod."
        ),
        fires={names.METRIC_EXTENDER_WAITING: "1x30"},
        silent={names.METRIC_EXTENDER_WAITING: "1x30", names.METRIC_EXTENDER_ALLOCATED: f"{14000 * MIB}x30"},
    )


# The alert waits longer than the extender's longest delay of one seat. Therefore the alert fires if several seats wait
# one after the other, or if a seat's pod fails to load its model.
_SEAT_HELD = Alert(
    "GpuSeatHeldBack",
    f"max by (pool) ({names.METRIC_EXTENDER_HELD_SEATS}) > 0",
    hold="2m",
    severity="warning",
    summary="{{ $value }} pods with a seat in pool {{ $labels.pool }} wait for memory that other pods use",
    description=(
        "By the ledger these pods fit, but other pods use their memory. The gate stops on-demand workloads and the "
        "watchdog recycles pods. The Events of the waiting pods name the pods over their budgets: "
        f"kubectl get events -A --field-selector reason={names.EVENT_SEAT_HELD}."
    ),
    fires={names.METRIC_EXTENDER_HELD_SEATS: "1x30"},
    silent={names.METRIC_EXTENDER_HELD_SEATS: "0x13 1 0x15"},
)

_SEAT_OVERCROWDED = Alert(
    "GpuSeatOvercrowded",
    f"sum by (pool) (increase({names.METRIC_EXTENDER_OVERCROWDED}[15m])) > 0",
    hold="0s",
    severity="critical",
    summary="A pod with a seat of pool {{ $labels.pool }} was placed on a device where other pods use its memory",
    description=(
        "The memory was not freed in time. The new pod may fail to load its model until a pod over its budget frees "
        "memory. The Event names the pod over its budget: kubectl get events -A --field-selector "
        f"reason={names.EVENT_SEAT_OVERCROWDED}. Delete that pod, or lower its use."
    ),
    fires={names.METRIC_EXTENDER_OVERCROWDED: "0x10 1x20"},
    silent={names.METRIC_EXTENDER_OVERCROWDED: "1x30"},
)

_SEAT_WITHOUT_ROOM = Alert(
    "GpuSeatWithoutRoom",
    f"max by (pool, seat) ({names.METRIC_EXTENDER_UNPLACED_SEATS}) > 0",
    hold="15m",
    severity="warning",
    summary="No device of pool {{ $labels.pool }} has room for the next pod of {{ $labels.seat }}",
    description=(
        "The seats no longer fit on the devices next to the running pods. A node or a device is lost, or a budget has "
        "changed and pods with the old budget still run. If other seats have the same size, one of them lacks room. "
        "kubectl gpumem who shows the pods on each device."
    ),
    fires={f'{names.METRIC_EXTENDER_UNPLACED_SEATS}{{pool="t4",seat="llm"}}': "1x30"},
    silent={f'{names.METRIC_EXTENDER_UNPLACED_SEATS}{{pool="t4",seat="llm"}}': "1x13 0x17"},
)
