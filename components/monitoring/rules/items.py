"""The alert on objects that an agent cannot judge."""

from collections.abc import Iterator

from components.monitoring.alert import Alert
from components.monitoring.args import AlertsArgs
from tenancy import names


def rules(args: AlertsArgs) -> Iterator[Alert]:
    """The reconcile agent, the watchdog and the gate have no metrics, so the exporter also reads the fields that only
    they read.
    """
    yield Alert(
        "GpuObjectUnjudged",
        f"max by (agent, kind) ({names.METRIC_UNJUDGED}) > 0",
        hold="5m",
        severity="warning",
        summary="{{ $labels.agent }} cannot judge {{ $value }} objects of the kind {{ $labels.kind }}",
        description=(
            "A field of these objects has a value that the agent cannot read. A pod of this kind counts as a pod "
            "without a budget. All other objects are judged as usual. The agent's log names each object and the "
            'field. Search for "cannot be judged".'
        ),
        fires={names.METRIC_UNJUDGED: "1x30"},
        silent={names.METRIC_UNJUDGED: "0x13 1x3 0x13"},
    )
