"""Tests the alerts and scrapes in plain files, for a Prometheus without the Prometheus Operator."""

from dataclasses import replace
from typing import Any

from components.monitoring.args import AlertsSpec
from components.monitoring.component import Alerts
from components.monitoring.pod_monitors import kueue_monitor, pod_monitor, scheduler_monitor, scrape_configs
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


def test_each_scrape_selects_the_pods_of_its_monitor() -> None:
    *scrapes, kueue = scrape_configs(ARGS)["scrape_configs"]
    (service,) = kueue_monitor(ARGS, "kueue-system")["spec"]["selector"]["matchLabels"].values()
    assert service in {each.get("regex") for each in kueue["relabel_configs"]}
    for scrape, monitor in zip(scrapes, (pod_monitor(ARGS), scheduler_monitor(ARGS)), strict=True):
        (endpoint,), selector = monitor["spec"]["podMetricsEndpoints"], monitor["spec"]["selector"]
        assert scrape["scrape_interval"] == endpoint["interval"]
        (discovery,) = scrape["kubernetes_sd_configs"]
        assert discovery["namespaces"]["names"] == monitor["spec"]["namespaceSelector"]["matchNames"]
        kept = {each["source_labels"][0]: each["regex"] for each in scrape["relabel_configs"] if "regex" in each}
        assert kept["__meta_kubernetes_pod_label_app_kubernetes_io_name"].split("|") == selected(selector)
        assert kept["__meta_kubernetes_pod_container_port_name"] == endpoint["port"]


def test_samples_of_a_local_queue_keep_its_namespace() -> None:
    (endpoint,) = kueue_monitor(ARGS, "kueue-system")["spec"]["endpoints"]
    assert {"action": "labeldrop", "regex": "namespace"} in endpoint["relabelings"]
    *_, kueue = scrape_configs(ARGS)["scrape_configs"]
    assert "namespace" not in {each.get("target_label") for each in kueue["relabel_configs"]}


def selected(selector: dict[str, Any]) -> list[str]:
    return list(selector.get("matchLabels", {}).values()) or list(selector["matchExpressions"][0]["values"])


def test_only_a_stack_that_places_by_device_has_a_scrape_of_the_scheduler() -> None:
    scrape, kueue = scrape_configs(replace(ARGS, places_by_device=False))["scrape_configs"]
    assert kueue["job_name"] == "kueue"
    assert {"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": "node"} in scrape["relabel_configs"]
