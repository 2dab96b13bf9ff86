"""Tests the alerts for a Prometheus without the Prometheus Operator."""

from dataclasses import replace

from components.monitoring.args import AlertsSpec
from components.monitoring.component import Alerts
from tests.support.engine import names
from tests.support.given import declared
from tests.support.healthy import ARGS
from tests.support.prod import put, refusal


def test_without_the_operator_only_the_dashboard_is_an_object() -> None:
    graph = declared(Alerts, "alerts", replace(ARGS, spec=AlertsSpec(operator=False)))
    assert names(graph.children(graph.one("Alerts"))) == {"alerts-dashboard"}


def test_a_digest_without_the_operator_is_refused() -> None:
    digest = put("alerts digest", {"slack_webhook": {"secret": "hook"}})
    line = "gpu-tenancy:alerts.digest: is an object of the Prometheus Operator; remove it, or operator: false"
    assert refusal(put("alerts operator", False), digest)[0].startswith(line)
