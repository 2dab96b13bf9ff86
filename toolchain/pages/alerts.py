"""docs/reference/alerts.md: each alert, from the rules of the example stacks, which have every part together."""

import re
from collections.abc import Iterator
from pathlib import Path

from components.monitoring.alert import Alert
from components.monitoring.args import AlertsSpec
from components.monitoring.rules import alerts
from stacks import platform, settings
from toolchain.pages.markdown import MADE, row, table

STACKS = ("Pulumi.prod.yaml", "examples/enforced.yaml")
_HEAD = f"""# Alerts

{MADE}

With `alerts` in the stack file, Prometheus gets the alerts on the parts that the stack has. An alert links to its entry
in the [run book](../operations.md#alerts). `<...>` stands for a label or a value. The severity `info` is for an event,
which is reported once.
"""


def page(root: Path) -> str:
    """Returns the page. `root` is the folder of the example stacks."""
    rows = [_row(alert) for _, alert in sorted(alerts_of_examples(root).items())]
    return f"{_HEAD}\n{table(('alert', 'severity', 'fires after', 'summary'), rows)}"


def alerts_of_examples(root: Path) -> dict[str, Alert]:
    """Returns each alert of the example stacks by its name: the first of each name."""
    named: dict[str, Alert] = {}
    for stack in STACKS:
        for alert in _of(root / stack):
            named.setdefault(alert.name, alert)
    return named


def _of(stack: Path) -> Iterator[Alert]:
    given = settings.from_file(stack)
    yield from alerts(platform.alerts_args(given, given.alerts or AlertsSpec(), given.ledger()))


def _row(alert: Alert) -> str:
    name = f"[{alert.name}](../operations.md#{alert.name.lower()})"
    return row(name, alert.severity, "at once" if alert.hold == "0s" else alert.hold, _summary(alert.summary))


def _summary(template: str) -> str:
    """The summary as it reads when a label is there. `{{ $labels.node }}` becomes `<node>`."""
    text = re.sub(r"\{\{ if [^}]*\}\}(.*?)\{\{ else \}\}.*?\{\{ end \}\}", r"\1", template)
    text = re.sub(r"\{\{ if [^}]*\}\}(.*?)\{\{ end \}\}", r"\1", text)
    return re.sub(r"\{\{ *\$(?:labels\.)?(\w+)[^}]*\}\}", r"&lt;\1&gt;", text)
