"""The Grafana dashboard, as a ConfigMap that Grafana's sidecar takes up.

dashboard.json is what Grafana's JSON model shows. Change the dashboard in Grafana, save its JSON model over the file
without `id`, `version` and the run book; the tests compare its queries with the names that the agents serve.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from components.base.manifest import Manifest
from tenancy import names

KEY = "gpu-tenancy.json"
_MODEL = Path(__file__).with_name("dashboard.json")


def dashboard(namespace: str, labels: Mapping[str, str], run_book: str) -> Manifest:
    """The ConfigMap; `labels` is what the sidecar selects by, `run_book` the address of docs/operations.md."""
    metadata = {
        "name": names.DASHBOARD,
        "namespace": namespace,
        "labels": names.labels("alerts", names.DASHBOARD) | dict(labels),
    }
    model = read()
    model |= {"description": f"{model['description']} Run book: {run_book}", "links": _links(run_book)}
    content = json.dumps(model, sort_keys=True, indent=1)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: content}}


def read() -> Manifest:
    """The dashboard as Grafana has it, without the run book."""
    model: Manifest = json.loads(_MODEL.read_text(encoding="utf-8"))
    return model


def _links(run_book: str) -> list[Manifest]:
    """None to a path in the repository: Grafana would look for it on its own server."""
    if not run_book.startswith(("http://", "https://")):
        return []
    link = {"title": "Run book", "type": "link", "icon": "doc", "tooltip": "", "url": run_book, "targetBlank": True}
    return [link | dict.fromkeys(("asDropdown", "includeVars", "keepTime"), False) | {"tags": []}]
