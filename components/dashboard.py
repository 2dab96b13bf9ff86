"""The Grafana dashboard: the seating chart over time, as a ConfigMap that Grafana's sidecar takes up."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from components.manifest import Manifest
from tenancy import names

_KEY = "gpu-tenancy.json"
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_NODE = 'node=~"$node"'
_WIDTH = 24  # columns of Grafana's grid


@dataclass(frozen=True, kw_only=True)
class Query:
    """One line or area; `legend` names it by its labels."""

    expression: str
    legend: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A graph over time. `stacked`: areas on one another; queries whose legend is in `lines` stay lines above them."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "bytes"
    stacked: bool = False
    lines: tuple[str, ...] = ()
    columns: int = _WIDTH // 2


PANELS = (
    Panel(
        title="Who has the memory of each device",
        description="Use by pod, then what no pod's series shows, then what is free. It adds up to the device.",
        queries=(
            Query(
                expression=f'sum by (node, gpu, namespace, pod) ({names.METRIC_POD_USED}{{{_NODE}, pod!=""}})',
                legend="{{namespace}}/{{pod}}",
            ),
            Query(
                expression=f'sum by (node, gpu) ({names.METRIC_POD_USED}{{{_NODE}, pod=""}})',
                legend="pods without a name",
            ),
            Query(expression=f"sum by (node, gpu) ({names.METRIC_UNATTRIBUTED}{{{_NODE}}})", legend="unattributed"),
            Query(expression=f"sum by (node, gpu) ({names.METRIC_DEVICE_FREE}{{{_NODE}}})", legend="free"),
        ),
        stacked=True,
        columns=_WIDTH,
    ),
    Panel(
        title="The seating chart",
        description="What is promised: each seat, and what the pool advertises. Between them is the headroom.",
        queries=(
            Query(expression=f"max by (pool, seat) ({names.METRIC_SEAT})", legend="{{seat}}"),
            Query(expression=f"max by (pool) ({names.METRIC_POOL_ADVERTISED})", legend="advertised by {{pool}}"),
        ),
        stacked=True,
        lines=("advertised.*",),
    ),
    Panel(
        title="Used of what was declared",
        description="1 is the whole budget; more is in slack that the watchdog takes back under pressure.",
        queries=(
            Query(
                expression=(
                    f"sum by (namespace, pod) ({names.METRIC_POD_USED}{{{_NODE}}})"
                    f" / on (namespace, pod) max by (namespace, pod) ({names.METRIC_POD_DECLARED}{{{_NODE}}})"
                ),
                legend="{{namespace}}/{{pod}}",
            ),
        ),
        unit="percentunit",
    ),
    Panel(
        title="Free memory and the floor",
        description="Under the floor the watchdog recycles who is over budget.",
        queries=(
            Query(
                expression=f"min by (node, gpu) ({names.METRIC_DEVICE_FREE}{{{_NODE}}})", legend="{{node}} GPU {{gpu}}"
            ),
            Query(expression=f"max by (pool) ({names.METRIC_POOL_FLOOR})", legend="floor of {{pool}}"),
        ),
    ),
    Panel(
        title="Over budget",
        description="What each pod uses beyond what it declared.",
        queries=(
            Query(
                expression=f"max by (namespace, pod) ({names.METRIC_POD_OVER}{{{_NODE}}}) > 0",
                legend="{{namespace}}/{{pod}}",
            ),
        ),
    ),
    Panel(
        title="Since the last completed run",
        description="The agents' heartbeat: each completes a run a minute.",
        queries=(
            Query(
                expression=(
                    "time() - max by (cronjob) (kube_cronjob_status_last_successful_time"
                    f'{{cronjob=~"{names.RECONCILE}|{names.WATCHDOG}|{names.GATE}"}})'
                ),
                legend="{{cronjob}}",
            ),
        ),
        unit="s",
    ),
    Panel(
        title="Recycles within the hour",
        description="By the watchdog; at its cap it stops.",
        queries=(Query(expression=f"max({names.METRIC_RECYCLES})", legend="recycles"),),
        unit="short",
    ),
)


def dashboard(namespace: str, labels: Mapping[str, str]) -> Manifest:
    """The ConfigMap; `labels` is what the sidecar selects by."""
    metadata = {
        "name": names.DASHBOARD,
        "namespace": namespace,
        "labels": names.labels("alerts", names.DASHBOARD) | dict(labels),
    }
    model = json.dumps(_model(), sort_keys=True, indent=1)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_KEY: model}}


def _model() -> Manifest:
    return {
        "uid": names.PROJECT,
        "title": "GPU tenancy",
        "tags": [names.PROJECT],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), _node()]},
        "panels": _panels(),
    }


def _datasource() -> Manifest:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _node() -> Manifest:
    return {
        "name": "node",
        "label": "Node",
        "type": "query",
        "datasource": _DATASOURCE,
        "query": f"label_values({names.METRIC_DEVICE_TOTAL}, node)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> list[Manifest]:
    """From left to right, a new row where the next does not fit."""
    drawn, x, y, height = [], 0, 0, 9
    for number, panel in enumerate(PANELS, start=1):
        if x + panel.columns > _WIDTH:
            x, y = 0, y + height
        drawn.append(_drawn(panel, number) | {"gridPos": {"x": x, "y": y, "w": panel.columns, "h": height}})
        x += panel.columns
    return drawn


def _drawn(panel: Panel, number: int) -> Manifest:
    stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {"fillOpacity": 60 if panel.stacked else 0, "lineWidth": 1, "stacking": stacking},
            },
            "overrides": [_line(legend) for legend in panel.lines],
        },
        "options": {
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _DATASOURCE, "expr": q.expression, "legendFormat": q.legend}
            for index, q in enumerate(panel.queries)
        ],
    }


def _line(legend: str) -> Manifest:
    properties = {"custom.stacking": {"mode": "none"}, "custom.fillOpacity": 0, "custom.lineWidth": 2}
    return {
        "matcher": {"id": "byRegexp", "options": legend},
        "properties": [{"id": name, "value": value} for name, value in properties.items()],
    }
