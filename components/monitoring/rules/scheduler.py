"""Alerts on placement by device: over what the extenders serve of themselves."""

from collections.abc import Iterator

from components.base.manifest import Manifest
from components.monitoring.args import AlertsArgs
from components.monitoring.rules.alert import alert
from tenancy import names
from tenancy.units import MIB


def rules(args: AlertsArgs) -> Iterator[Manifest]:
    """None where nothing is placed by device."""
    if not args.places_by_device:
        return
    yield _down(args.cluster.system_namespace)
    yield _drift(args.cluster.system_namespace)
    yield _refused_by_use(min(pool.floor_mib for pool in args.ledger.shared_pools))
    yield _seat_held()
    yield _seat_overcrowded()


def _down(namespace: str) -> Manifest:
    return alert(
        "GpuSchedulerDown",
        f"absent({names.METRIC_EXTENDER_LEADING} == 1 and {names.METRIC_EXTENDER_READY} == 1)",
        hold="2m",
        severity="critical",
        summary=f"No pod of {names.SCHEDULER} places pods",
        description=(
            f"None leads and knows the cluster, so pods with GPU memory wait; what runs goes on. See the pods: kubectl "
            f"-n {namespace} get pods,lease -l {names.LABEL_NAME}={names.SCHEDULER}, and the logs of both containers."
        ),
    )


def _drift(namespace: str) -> Manifest:
    """What is in use beyond the pods' own (`outside`) has alerts of its own, on who uses it."""
    return alert(
        "GpuPlacementDrift",
        f'max by (kind) ({names.METRIC_EXTENDER_DRIFT}{{kind!="outside"}}) > 0',
        hold="10m",
        severity="warning",
        summary="{{ $value }} pods or devices are {{ $labels.kind }} in the ledger of placement",
        description=(
            f"The ledger of {names.SCHEDULER}, the pods and their devices do not agree. Its log names them: kubectl -n "
            f"{namespace} logs -l {names.LABEL_NAME}={names.SCHEDULER} -c extender."
        ),
    )


def _refused_by_use(floor_mib: int) -> Manifest:
    """Where pools have several floors, the smallest: less may be reported, and nothing wrong."""
    left = f"max by (node, gpu, uuid) ({names.METRIC_EXTENDER_OFFERED} - {names.METRIC_EXTENDER_ALLOCATED})"
    measured = f"max by (uuid) ({names.METRIC_DEVICE_FREE}) - {floor_mib * MIB}"
    waiting = f"max({names.METRIC_EXTENDER_WAITING}) > 0"
    return alert(
        "GpuPlacementRefusedByUse",
        f"({left} > on (uuid) group_left () ({measured})) and on () ({waiting})",
        hold="10m",
        severity="warning",
        summary="Pods wait though GPU {{ $labels.gpu }} of {{ $labels.node }} has {{ $value | humanize1024 }}B to give",
        description=(
            "By the ledger the memory is free, by measurement it is not: somebody uses the device without a budget or "
            "beyond one. GpuPodOverBudget and GpuUndeclaredUser say who."
        ),
    )


def _seat_held() -> Manifest:
    """Longer than gates and watchdog take, and than a seat is held back by default: one after the other, or one that
    fails to load."""
    return alert(
        "GpuSeatHeldBack",
        f"max by (pool) ({names.METRIC_EXTENDER_HELD_SEATS}) > 0",
        hold="2m",
        severity="warning",
        summary="{{ $value }} seats of pool {{ $labels.pool }} wait for memory that others use",
        description=(
            "The ledger has their room, and what is in use keeps them from loading. Gates close and the watchdog "
            "recycles for them; each one's Events say who is over: kubectl get events -A --field-selector "
            f"reason={names.EVENT_SEAT_HELD}."
        ),
    )


def _seat_overcrowded() -> Manifest:
    return alert(
        "GpuSeatOvercrowded",
        f"sum by (pool) (increase({names.METRIC_EXTENDER_OVERCROWDED}[15m])) > 0",
        hold="0s",
        severity="critical",
        summary="A seat of pool {{ $labels.pool }} was placed on memory that others use",
        description=(
            "Reclaim did not give the memory back in time: the pod may fail to load until who is over does. The "
            f"Event says who: kubectl get events -A --field-selector reason={names.EVENT_SEAT_OVERCROWDED}. Delete "
            "that pod, or lower what it uses."
        ),
    )
