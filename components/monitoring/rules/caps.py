"""Alerts on the driver's caps: whether each container that has a budget is held to it, and whether its node can."""

from collections.abc import Iterator

from components.base.manifest import Manifest
from components.monitoring.args import AlertsArgs
from components.monitoring.rules.alert import alert
from tenancy import names


def rules(args: AlertsArgs) -> Iterator[Manifest]:
    """Only where a pool has the driver enforce."""
    if any(pool.caps for pool in args.ledger.pools):
        yield _missing()
        yield _unable()


def _missing() -> Manifest:
    """Within a minute of the reading, and not for the two scrapes in which a container that restarts has a new group
    and its old id."""
    return alert(
        "GpuCapMissing",
        f"max by (node, namespace, pod, container, reason) ({names.METRIC_CAPPED} == bool 0) > 0",
        hold="20s",
        severity="critical",
        summary=(
            "The driver does not hold {{ $labels.namespace }}/{{ $labels.pod }} ({{ $labels.container }}) on "
            "{{ $labels.node }} to its budget: {{ $labels.reason }}"
        ),
        description=(
            "Its pool says enforce: driver, and what NVML has of its control group is not its gpumem. It may take what "
            "others were promised, as on a pool without; the watchdog recycles it as there. Compare the reason."
        ),
    )


def _unable() -> Manifest:
    return alert(
        "GpuCapUnable",
        f"max by (node, reason) ({names.METRIC_CAN_CAP} == bool 0) > 0",
        hold="1m",
        severity="warning",
        summary="{{ $labels.node }} cannot hold containers to their GPU memory: {{ $labels.reason }}",
        description=(
            "Its pool says enforce: driver. With require_cap no pod with a budget is placed there any more; without, "
            "a container that asks for its cap may not even start. Bring the node up to what its pool needs, or take "
            "enforce back."
        ),
    )
