"""The Grafana dashboard: the seating chart over time, as a ConfigMap that Grafana's sidecar takes up."""

import enum
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from components.alert import SILENT_SECONDS
from components.manifest import Manifest
from tenancy import names

_KEY = "gpu-tenancy.json"
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_NODE, _GPU, _POOL = 'node=~"$node"', 'gpu=~"$gpu"', 'pool=~"$pool"'
_DEVICE = f"{_NODE}, {_GPU}"
_WIDTH, _HEIGHT = 24, 9  # columns of Grafana's grid, rows of a panel


class Look(enum.StrEnum):
    """How the series of a query are drawn."""

    OWN = "each in a colour of its own"
    NOBODY = "grey: memory that bears no pod's name"
    FREE = "pale, hardly filled"
    LIMIT = "a dashed red line, on no stack"


@dataclass(frozen=True, kw_only=True)
class Query:
    """Lines, or areas where the panel stacks; `legend` names each by its labels."""

    expression: str
    legend: str
    look: Look = Look.OWN


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A graph over time. `stacked`: areas on one another. `repeat`: a variable that has a panel for each of its values.
    `limit`: a dashed line at this value. `empty`: what it means that there is nothing to show."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "bytes"
    decimals: int | None = None
    stacked: bool = False
    repeat: str | None = None
    limit: float | None = None
    empty: str = "No data: see GpuTelemetryMissing in the run book"
    columns: int = _WIDTH // 2


PANELS = (
    Panel(
        title="Who has the memory of $node",
        description="Use by pod, then what no pod's series shows, then what is free. It adds up to the devices.",
        queries=(
            Query(
                expression=f'sum by (gpu, namespace, pod) ({names.METRIC_POD_USED}{{{_DEVICE}, pod!=""}})',
                legend="GPU {{gpu}}: {{namespace}}/{{pod}}",
            ),
            Query(
                expression=f'sum by (gpu) ({names.METRIC_POD_USED}{{{_DEVICE}, pod=""}})',
                legend="GPU {{gpu}}: pods without a name",
                look=Look.NOBODY,
            ),
            Query(
                expression=f"sum by (gpu) ({names.METRIC_UNATTRIBUTED}{{{_DEVICE}}})",
                legend="GPU {{gpu}}: unattributed",
                look=Look.NOBODY,
            ),
            Query(
                expression=f"sum by (gpu) ({names.METRIC_DEVICE_FREE}{{{_DEVICE}}})",
                legend="GPU {{gpu}}: free",
                look=Look.FREE,
            ),
        ),
        stacked=True,
        repeat="node",
        columns=_WIDTH,
    ),
    Panel(
        title="The seating chart of $pool",
        description="What is promised: each seat, and what the pool advertises. Between them is the headroom.",
        queries=(
            Query(expression=f"max by (seat) ({names.METRIC_SEAT}{{{_POOL}}})", legend="{{seat}}"),
            Query(
                expression=f"max by (pool) ({names.METRIC_POOL_ADVERTISED}{{{_POOL}}})",
                legend="advertised",
                look=Look.LIMIT,
            ),
        ),
        stacked=True,
        repeat="pool",
        columns=_WIDTH,
    ),
    Panel(
        title="Free memory and the floor",
        description="Under the floor the watchdog recycles who is over budget.",
        queries=(
            Query(
                expression=f"min by (node, gpu) ({names.METRIC_DEVICE_FREE}{{{_DEVICE}}})",
                legend="{{node}} GPU {{gpu}}",
            ),
            Query(
                expression=f"max by (pool) ({names.METRIC_POOL_FLOOR}{{{_POOL}}})",
                legend="floor of {{pool}}",
                look=Look.LIMIT,
            ),
        ),
    ),
    Panel(
        title="Used of what was declared",
        description="100% is the whole budget; more is in slack that the watchdog takes back under pressure.",
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
        limit=1,
        empty="No pod declares GPU memory",
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
        empty="No pod uses more than it declared",
        columns=_WIDTH // 3,
    ),
    Panel(
        title="Since the last completed run",
        description="The agents' heartbeat: each completes a run a minute, and over the line an alert tells.",
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
        limit=SILENT_SECONDS,
        empty="No run has completed: see GpuAgentUnseen in the run book",
        columns=_WIDTH // 3,
    ),
    Panel(
        title="Recycles within the hour",
        description="By the watchdog; at its cap it stops.",
        queries=(Query(expression=f"max({names.METRIC_RECYCLES})", legend="recycles"),),
        unit="none",
        decimals=0,
        empty="No watchdog keeps a journal",
        columns=_WIDTH // 3,
    ),
)


def dashboard(namespace: str, labels: Mapping[str, str], run_book: str) -> Manifest:
    """The ConfigMap; `labels` is what the sidecar selects by, `run_book` the address of docs/operations.md."""
    metadata = {
        "name": names.DASHBOARD,
        "namespace": namespace,
        "labels": names.labels("alerts", names.DASHBOARD) | dict(labels),
    }
    model = json.dumps(_model(run_book), sort_keys=True, indent=1)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_KEY: model}}


def _model(run_book: str) -> Manifest:
    return {
        "uid": names.PROJECT,
        "title": "GPU tenancy",
        "description": f"Budgets, use and agents of {names.PROJECT}. Run book: {run_book}",
        "tags": [names.PROJECT],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "graphTooltip": 1,  # one crosshair for all panels
        "links": _links(run_book),
        "templating": {"list": [_datasource(), *_variables()]},
        "panels": _panels(),
    }


def _links(run_book: str) -> list[Manifest]:
    """None to a path in the repository: Grafana would look for it on its own server."""
    if not run_book.startswith(("http://", "https://")):
        return []
    link = {"title": "Run book", "type": "link", "icon": "doc", "tooltip": "", "url": run_book, "targetBlank": True}
    switches = dict.fromkeys(("asDropdown", "includeVars", "keepTime"), False)
    return [link | switches | {"tags": []}]


def _datasource() -> Manifest:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variables() -> Iterator[Manifest]:
    yield _variable("node", "Node", f"label_values({names.METRIC_DEVICE_TOTAL}, node)")
    yield _variable("gpu", "GPU", f"label_values({names.METRIC_DEVICE_TOTAL}{{{_NODE}}}, gpu)")
    yield _variable("pool", "Pool", f"label_values({names.METRIC_SEAT}, pool)")


def _variable(name: str, label: str, query: str) -> Manifest:
    """Any number of the values that the query finds, anew with each time range; at first all."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": query,
        "refresh": 2,
        "sort": 7,  # as people count, whatever the case
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels() -> list[Manifest]:
    """From left to right, a new row where the next does not fit."""
    drawn, x, y = [], 0, 0
    for number, panel in enumerate(PANELS, start=1):
        if x + panel.columns > _WIDTH:
            x, y = 0, y + _HEIGHT
        drawn.append(_drawn(panel, number) | {"gridPos": {"x": x, "y": y, "w": panel.columns, "h": _HEIGHT}})
        x += panel.columns
    return drawn


def _drawn(panel: Panel, number: int) -> Manifest:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        **({"repeat": panel.repeat, "repeatDirection": "v"} if panel.repeat else {}),
        "fieldConfig": {
            "defaults": _defaults(panel),
            "overrides": [_override(ref, _LOOKS[query.look]) for ref, query in _references(panel)],
        },
        "options": {
            "legend": _legend(panel),
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": ref, "datasource": _DATASOURCE, "expr": query.expression, "legendFormat": query.legend}
            for ref, query in _references(panel)
        ],
    }


def _references(panel: Panel) -> Iterator[tuple[str, Query]]:
    return zip("ABCDEFGH", panel.queries, strict=False)


def _legend(panel: Panel) -> Manifest:
    wide = panel.columns == _WIDTH
    place = {"displayMode": "table", "placement": "right"} if wide else {"displayMode": "list", "placement": "bottom"}
    return {"showLegend": True, "calcs": ["lastNotNull", "max"] if wide else [], **place}


def _defaults(panel: Panel) -> Manifest:
    custom: Manifest = {
        "fillOpacity": 60 if panel.stacked else 0,
        "lineWidth": 1,
        "showPoints": "never",
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
    }
    defaults: Manifest = {"unit": panel.unit, "min": 0, "noValue": panel.empty, "custom": custom}
    if panel.decimals is not None:
        defaults["decimals"] = panel.decimals
    if panel.limit is not None:
        custom |= {"thresholdsStyle": {"mode": "dashed"}, "axisSoftMax": panel.limit}
        steps = [{"color": "transparent", "value": None}, {"color": "red", "value": panel.limit}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return defaults


def _fixed(colour: str) -> Manifest:
    return {"mode": "fixed", "fixedColor": colour}


_LOOKS: Mapping[Look, Manifest] = {
    Look.OWN: {},
    Look.NOBODY: {"color": _fixed("#8e8e8e")},
    Look.FREE: {"color": _fixed("#ccccdc"), "custom.fillOpacity": 5},
    Look.LIMIT: {
        "color": _fixed("red"),
        "custom.fillOpacity": 0,
        "custom.lineWidth": 2,
        "custom.lineStyle": {"fill": "dash", "dash": [10, 10]},
        "custom.stacking": {"mode": "none", "group": "A"},
    },
}


def _override(reference: str, properties: Manifest) -> Manifest:
    return {
        "matcher": {"id": "byFrameRefID", "options": reference},
        "properties": [{"id": name, "value": value} for name, value in properties.items()],
    }
