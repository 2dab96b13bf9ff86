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
            "Its pool says enforce: driver, and what NVML has of its control group is not its gpumem. It may take what "
            "others were promised, as on a pool without; the watchdog recycles it as there. Compare the reason."
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
            "Its pool says enforce: driver. With require_cap no pod with a budget is placed there any more; without, "
            "a container that asks for its cap may not even start. Bring the node up to what its pool needs, or take "
            "enforce back."
        ),
        fires={f'{names.METRIC_CAN_CAP}{{node="a"}}': "0x30"},
        silent={f'{names.METRIC_CAN_CAP}{{node="a"}}': "1x30"},
    )
