"""Generates docs/reference/alerts.md from the alerts of three example stacks, which together have every alert."""

import re
from collections.abc import Iterator
from pathlib import Path

from components.monitoring.alert import Alert
from components.monitoring.args import AlertsSpec
from components.monitoring.rules import alerts
from stacks import platform, settings
from toolchain.pages.markdown import MADE, row, table

STACKS = ("Pulumi.prod.yaml", "examples/enforced.yaml", "examples/kueue-demo/manager.yaml")
_HEAD = f"""# Alerts

{MADE}

If the stack file has the setting `alerts`, Prometheus gets the alerts for the parts that the stack declares. Each alert
links to its entry in the [run book](../operations.md#alerts). `<...>` stands for the value of a label or of the
expression. An alert with the severity `info` reports an event once.
"""


def page(root: Path) -> str:
    """Returns the text of the page of alerts. `root` is the checkout with the example stacks."""
    rows = [_row(alert) for _, alert in sorted(alerts_of_examples(root).items())]
    return f"{_HEAD}\n{table(('alert', 'severity', 'fires after', 'summary'), rows)}"


def alerts_of_examples(root: Path) -> dict[str, Alert]:
    """Maps each alert's name to the alert. If several stacks have the alert, the map has the alert of the first
    stack."""
    named: dict[str, Alert] = {}
    for stack in STACKS:
        for alert in _of(root / stack):
            named.setdefault(alert.name, alert)
    return named


def _of(stack: Path) -> Iterator[Alert]:
    given = settings.load_file(stack)
    yield from alerts(platform.alerts_args(given, given.alerts or AlertsSpec(), given.ledger()))


def _row(alert: Alert) -> str:
    name = f"[{alert.name}](../operations.md#{alert.name.lower()})"
    return row(name, alert.severity, "at once" if alert.hold == "0s" else alert.hold, _summary(alert.summary))


def _summary(template: str) -> str:
    """Returns the summary with placeholders. For example, `{{ $labels.node }}` becomes `<node>`.

    If the template contains a condition, the function treats the condition as true.
    """
    text = re.sub(r"\{\{ if [^}]*\}\}(.*?)\{\{ else \}\}.*?\{\{ end \}\}", r"\1", template)
    text = re.sub(r"\{\{ if [^}]*\}\}(.*?)\{\{ end \}\}", r"\1", text)
    return re.sub(r"\{\{ *\$(?:labels\.)?(\w+)[^}]*\}\}", r"&lt;\1&gt;", text)
