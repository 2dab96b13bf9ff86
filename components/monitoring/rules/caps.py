"""Alerts on the driver's caps: containers without their cap, and nodes that cannot cap."""

from collections.abc import Iterator

from components.monitoring.alert import Alert
from components.monitoring.args import AlertsArgs
from tenancy import names


def rules(args: AlertsArgs) -> Iterator[Alert]:
    if not any(pool.caps for pool in args.ledger.pools):
        return
    yield Alert(
        "GpuCapMissing",
        f"max by (node, namespace, pod, container, reason) ({names.METRIC_CAPPED} == bool 0) > 0",
        # Within a minute of the reading, but not for the two scrapes after a restart: a new group under the old id.
        hold="20s",
        severity="critical",
        summary=(
            "The driver does not hold {{ $labels.namespace }}/{{ $labels.pod }} ({{ $labels.container }}) on "
            "{{ $labels.node }} to its budget: {{ $labels.reason }}"
        ),
        description=(
            "Its pool has enforce: driver, but NVML's limit of its control group is not its gpumem. The container may "
            "take memory that others were promised, and the watchdog treats it like one in a pool without enforce. The "
            "run book explains the reason."
        ),
        fires={f'{names.METRIC_CAPPED}{{node="a", pod="chat-0"}}': "0x30"},
        silent={f'{names.METRIC_CAPPED}{{node="a", pod="chat-0"}}': "1x30"},
    )
    yield Alert(
        "GpuCapUnable",
        f"max by (node, reason) ({names.METRIC_CAN_CAP} == bool 0) > 0",
        hold="1m",
        severity="warning",
        summary="{{ $labels.node }} cannot hold containers to their GPU memory: {{ $labels.reason }}",
        description=(
            "Its pool has enforce: driver. With require_cap, new pods with a budget are kept off the node. If it is "
            "off, a container with a cap may fail to start. Upgrade the node to the needs of its pool, or remove "
            "enforce."
        ),
        fires={f'{names.METRIC_CAN_CAP}{{node="a"}}': "0x30"},
        silent={f'{names.METRIC_CAN_CAP}{{node="a"}}': "1x30"},
    )
