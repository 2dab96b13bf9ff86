"""Generates docs/reference/metrics.md: the series that the agents serve, and the series of recording rules."""

from collections.abc import Mapping

from agents.exporter import metrics as exporter
from agents.extender import metrics as extender
from agents.guard import main as guard
from agents.runtime.exposition import Metric
from components.monitoring import usage
from toolchain.pages.markdown import MADE, row, table

AGENTS: Mapping[str, tuple[str, Mapping[str, Metric]]] = {
    "Exporter": ("on each node of a pool, port 9401", exporter.METRICS),
    "Scheduler extender": ("in the scheduler's pod, port 9402", extender.METRICS),
    "Guard": ("on each node of a memory pool", guard.METRICS),
}
_HEAD = f"""# Metrics

{MADE}

If a series has a unit, its name ends with the unit: bytes or seconds. Only the pods that `cluster.prometheus` selects
may read the metrics pages. [Architecture](../architecture.md#telemetry) explains when an agent serves its page.
"""


def page() -> str:
    """Returns the text of the page of metrics."""
    parts = [_HEAD]
    for agent, (where, metrics) in AGENTS.items():
        rows = [_row(name, metric) for name, metric in metrics.items()]
        parts += [f"## {agent}\n", f"Served {where}.\n", table(("series", "type", "labels", "meaning"), rows)]
    recorded = [
        row(f"`{each['record']}`", "`tenant`, `pool`", usage.MEANINGS[each["record"]]) for each in usage.recordings()
    ]
    parts += ["## Recorded by Prometheus\n", table(("series", "labels", "meaning"), recorded)]
    return "\n".join(parts).rstrip() + "\n"


def _row(name: str, metric: Metric) -> str:
    return row(f"`{name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.text)
