"""One alerting rule, and the series of kube-state-metrics that rules share."""

import re

from components.base.manifest import Manifest
from tenancy import names

# A run succeeds once a minute, a few seconds earlier or later, and is seen up to two scrapes after it. One that fails
# by itself leaves 120 s between two successes. With the group's interval the alert is there within three minutes of the
# last success.
SILENT_SECONDS = 165
# The severity of what is over when it is reported: one message, and none that it is over.
ONCE = "info"


def alert(
    name: str, expression: str, *, hold: str, summary: str, description: str, stays: str | None = None, **labels: str
) -> Manifest:
    """`stays`: it fires so long after its cause went, so that an episode with gaps is reported once."""
    return {
        "alert": name,
        "expr": expression,
        "for": hold,
        **({"keep_firing_for": stays} if stays else {}),
        "labels": {names.ALERT_LABEL: names.PROJECT, **labels},
        "annotations": {"summary": summary, "description": description},
    }


def referring(rule: Manifest, run_book: str) -> Manifest:
    """The rule, with the entry of its name in the run book."""
    return rule | {"annotations": rule["annotations"] | {"runbook_url": f"{run_book}#{rule['alert'].lower()}"}}


def allocatable(resource: str) -> str:
    """PromQL: the resource by node. Several replicas of kube-state-metrics count once."""
    return f'max by (node) (kube_node_status_allocatable{{resource="{sanitised(resource)}"}})'


def sanitised(resource: str) -> str:
    """A resource's name as kube-state-metrics writes it (SanitizeLabelName, internal/store/utils.go)."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", resource)
