"""One alerting rule, and the series of kube-state-metrics that rules share."""

import re

from components.manifest import Manifest
from tenancy import names

_RUNBOOK = "docs/operations.md"


def alert(
    name: str, expression: str, *, hold: str, summary: str, description: str, stays: str | None = None, **labels: str
) -> Manifest:
    """Has an entry of its name in the run book. `stays`: it fires so long after its cause went, so that an episode with
    gaps is told once."""
    return {
        "alert": name,
        "expr": expression,
        "for": hold,
        **({"keep_firing_for": stays} if stays else {}),
        "labels": {names.ALERT_LABEL: names.PROJECT, **labels},
        "annotations": {
            "summary": summary,
            "description": description,
            "runbook_url": f"{_RUNBOOK}#{name.lower()}",
        },
    }


def allocatable(resource: str) -> str:
    """PromQL: the resource by node. Several replicas of kube-state-metrics count once."""
    return f'max by (node) (kube_node_status_allocatable{{resource="{sanitised(resource)}"}})'


def sanitised(resource: str) -> str:
    """A resource's name as kube-state-metrics writes it (SanitizeLabelName, internal/store/utils.go)."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", resource)
