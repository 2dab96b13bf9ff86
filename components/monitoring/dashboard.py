"""The Grafana dashboard, as a ConfigMap for Grafana's sidecar.

To change the dashboard, edit it in Grafana, and save its JSON model as dashboard.json. Remove `id`, `version` and the
run book's links from dashboard.json.
"""

import json
from pathlib import Path

from components.base.manifest import Manifest
from tenancy import names

KEY = "gpu-tenancy.json"
# The sidecar of Grafana's charts finds the ConfigMap by this label.
_SELECTED_BY = {"grafana_dashboard": "1"}
_MODEL = Path(__file__).with_name("dashboard.json")


def dashboard(namespace: str, run_book: str) -> Manifest:
    """Returns the dashboard's ConfigMap. `run_book` is the address of docs/operations.md."""
    metadata = {
        "name": names.DASHBOARD,
        "namespace": namespace,
        "labels": names.labels("alerts", names.DASHBOARD) | _SELECTED_BY,
    }
    model = read()
    model |= {"description": f"{model['description']} Run book: {run_book}", "links": _links(run_book)}
    content = json.dumps(model, sort_keys=True, indent=1)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: content}}


def read() -> Manifest:
    """Returns the dashboard's JSON model without the run book's links."""
    model: Manifest = json.loads(_MODEL.read_text(encoding="utf-8"))
    return model


def _links(run_book: str) -> list[Manifest]:
    """Returns the link to the run book, or no link if `run_book` is only a path. Grafana would open a run book's path
    on its own server."""
    if not run_book.startswith(("http://", "https://")):
        return []
    link = {"title": "Run book", "type": "link", "icon": "doc", "tooltip": "", "url": run_book, "targetBlank": True}
    return [link | dict.fromkeys(("asDropdown", "includeVars", "keepTime"), False) | {"tags": []}]
