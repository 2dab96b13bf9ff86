"""One alert with its examples, and the series of kube-state-metrics that rules share."""

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from components.base.manifest import Manifest
from tenancy import names

# A run succeeds each minute, within a few seconds, and Prometheus sees it up to two scrapes later. A single failed run
# leaves 120 s between two successes. The alert fires within three minutes of the last success.
SILENT_SECONDS = 165
# The severity of an event: it is reported once, without a message when the alert ends.
ONCE = "info"

# Changes to the series of a healthy cluster (tests/support/healthy.py). The key selects series as in PromQL, or names a
# new one. The value has a value for each minute, in promtool's notation.
Example = Mapping[str, str]


@dataclass(frozen=True)
class Alert:
    """A rule with two examples: with `fires` this alert alone fires after 15 minutes, with `silent` it does not.

    `stays` is the time that it keeps firing after its cause, so that an episode with gaps is reported once.
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
        """The alerting rule of Prometheus, with a link to its entry in the run book."""
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
    """PromQL: the resource by node, once for all replicas of kube-state-metrics."""
    return f"max by (node) ({allocatable_series(resource)})"


def allocatable_series(resource: str) -> str:
    """PromQL: the resource that nodes advertise, as kube-state-metrics exports it."""
    return f'kube_node_status_allocatable{{resource="{sanitised(resource)}"}}'


def sanitised(resource: str) -> str:
    """A resource's name as kube-state-metrics writes it (SanitizeLabelName, internal/store/utils.go)."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", resource)
