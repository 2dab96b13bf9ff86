"""An alert with its examples, and PromQL for kube-state-metrics that several rules use."""

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from components.base.manifest import Manifest
from tenancy import names

# The severity of an alert about a single occurrence. Alertmanager sends one message when an alert about a single
# occurrence begins, and none when it ends.
ONCE = "info"

# Changes to the series of a healthy cluster (tests/support/healthy.py). A key selects series as in PromQL, or names a
# new series. The value of a key is the series' values for each minute, in promtool's notation.
Example = Mapping[str, str]


@dataclass(frozen=True)
class Alert:
    """An alerting rule with two examples. With the series `fires`, only this alert fires after 15 minutes. With the
    series `silent`, the alert does not fire.

    `stays` is keep_firing_for: the time for which the alert still fires after its cause has ended. Therefore Prometheus
    reports a cause with short gaps only once.
    """

    name: str
    expression: str
    _: KW_ONLY
    hold: str
    severity: str
    summary: str
    description: str
    fires: Example
    silent: Example
    stays: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def rule(self, run_book: str) -> Manifest:
        """Returns the alerting rule for Prometheus, with a link to its entry in the run book."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.hold,
            **({"keep_firing_for": self.stays} if self.stays else {}),
            "labels": {names.ALERT_LABEL: names.PROJECT, "severity": self.severity, **self.labels},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{run_book}#{self.name.lower()}",
            },
        }


def allocatable(resource: str) -> str:
    """Returns PromQL: the allocatable amount of the resource by node. Several replicas of kube-state-metrics count
    once."""
    return f"max by (node) ({allocatable_series(resource)})"


def allocatable_series(resource: str) -> str:
    """Returns PromQL: the series of kube-state-metrics for the resource's allocatable amount."""
    return f'kube_node_status_allocatable{{resource="{sanitised(resource)}"}}'


def sanitised(resource: str) -> str:
    """Returns a resource's name as kube-state-metrics writes it (SanitizeLabelName, internal/store/utils.go)."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", resource)
