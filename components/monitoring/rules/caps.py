"""Alerts on the driver's caps: containers without their cap, and nodes that cannot enforce caps."""

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
        # The alert on a missing cap fires within a minute of the reading. The alert on a missing cap does not fire in
        # the two scrapes after a container's restart. In the two scrapes after a restart, the new control group still
        # has the old container's ID.
        hold="20s",
        severity="critical",
        summary=(
            "The driver does not enforce the budget of container {{ $labels.container }} of "
            "{{ $labels.namespace }}/{{ $labels.pod }} on {{ $labels.node }}: {{ $labels.reason }}"
        ),
        description=(
            "The container's pool has enforce: driver, but NVML's limit for its control group is not its gpumem. The "
            "container may take memory that is promised to other pods. The watchdog treats it like a container in a "
            "pool without enforce. The run book explains the reason."
        ),
        fires={f'{names.METRIC_CAPPED}{{node="a", pod="chat-0"}}': "0x30"},
        silent={f'{names.METRIC_CAPPED}{{node="a", pod="chat-0"}}': "1x30"},
    )
    yield Alert(
        "GpuCapUnable",
        f"max by (node, reason) ({names.METRIC_CAN_CAP} == bool 0) > 0",
        hold="1m",
        severity="warning",
        summary="The driver of {{ $labels.node }} cannot enforce GPU memory budgets: {{ $labels.reason }}",
        description=(
            "The node's pool has enforce: driver, so no new pod with a budget gets this node. Upgrade the node as the "
            "pool needs, or remove enforce from the pool."
        ),
        fires={f'{names.METRIC_CAN_CAP}{{node="a"}}': "0x30"},
        silent={f'{names.METRIC_CAN_CAP}{{node="a"}}': "1x30"},
    )
