"""Tests that the dashboard works in any Grafana, and uses only metrics that exist."""

import json
import re
from typing import Any

import pytest

from components.monitoring.dashboard import KEY, dashboard, read
from tenancy import names
from tenancy.seconds import SILENT_SECONDS

MODEL = read()
PANELS = MODEL["panels"]
VARIABLES = MODEL["templating"]["list"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]


def rendered(run_book: str = "docs/operations.md") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dashboard("monitoring", run_book)["data"][KEY])
    return found


def test_the_run_book_is_named_and_a_link_where_it_has_an_address() -> None:
    assert rendered()["description"] == "Budgets, use and agents of gpu-tenancy. Run book: docs/operations.md"
    assert rendered()["links"] == []
    (link,) = rendered("https://git.example.com/operations.md")["links"]
    assert (link["title"], link["url"]) == ("Run book", "https://git.example.com/operations.md")


def test_the_file_holds_nothing_of_the_grafana_that_it_was_edited_in() -> None:
    assert MODEL["uid"] == names.PROJECT
    assert not {"id", "version"} & MODEL.keys()
    assert (MODEL["links"], "Run book" in MODEL["description"]) == ([], False)
    parts = [*PANELS, *TARGETS, *(each for each in VARIABLES if each["type"] == "query")]
    assert {part["datasource"]["uid"] for part in parts} == {"${datasource}"}
    assert all("current" not in each or each["current"]["text"] == ["All"] for each in VARIABLES)


@pytest.mark.parametrize("expression", [each["expr"] for each in TARGETS] + [each["query"] for each in VARIABLES[1:]])
def test_a_query_is_about_metrics_that_are_served(expression: str) -> None:
    served = {value for key, value in vars(names).items() if key.startswith("METRIC_")}
    served.add("kube_cronjob_status_last_successful_time")
    asked = set(re.findall(r"[a-z]+(?:_[a-z]+)+(?=[{),]|$)", expression))
    assert asked
    assert asked <= served


def test_the_heartbeat_is_of_the_agents_that_are_cron_jobs_and_limited_where_the_alert_fires() -> None:
    (panel,) = (panel for panel in PANELS if panel["title"] == "Since the last completed run")
    (target,) = panel["targets"]
    assert f'{{cronjob=~"{names.RECONCILE}|{names.WATCHDOG}|{names.GATE}"}}' in target["expr"]
    assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1]["value"] == SILENT_SECONDS
    assert panel["fieldConfig"]["defaults"]["custom"]["axisSoftMax"] == SILENT_SECONDS


def test_every_variable_of_a_query_or_a_title_can_be_chosen() -> None:
    texts = [each["expr"] for each in TARGETS] + [
        f"{panel['title']} ${panel.get('repeat', 'node')}" for panel in PANELS
    ]
    used = {name for text in texts for name in re.findall(r"\$(\w+)", text)}
    assert used | {"datasource"} == {each["name"] for each in VARIABLES}
