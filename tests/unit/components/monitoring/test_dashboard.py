"""Tests that the dashboard works in any Grafana, and uses only metrics that exist."""

import re

import pytest

from components.monitoring.dashboard import read
from tenancy import names
from tenancy.seconds import SILENT_SECONDS

MODEL = read()
PANELS = MODEL["panels"]
VARIABLES = MODEL["templating"]["list"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]


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
