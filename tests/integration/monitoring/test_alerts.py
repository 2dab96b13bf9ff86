"""Tests with promtool that each alert fires in its own examples. A stack has alerts only about its own parts."""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from components.monitoring.alert import Alert
from components.monitoring.alertmanager import DigestSpec, SlackWebhook
from components.monitoring.args import AlertsArgs, AlertsSpec
from components.monitoring.component import Alerts, prometheus_rule
from components.monitoring.rules import alerts
from tenancy.choices import Sharing
from tests.support.alerting import Expected, contradiction, promtool
from tests.support.engine import names
from tests.support.given import T4, declared
from tests.support.healthy import ARGS, CAPPED, HEALTHY, changed
from tests.support.paths import ROOT

EACH = [pytest.param(alert, id=" ".join((alert.name, *alert.labels.values()))) for alert in alerts(ARGS)]


def told(args: AlertsArgs) -> set[str]:
    return {alert.name for alert in alerts(args)}


@pytest.mark.parametrize("alert", EACH)
def test_an_alert_fires_alone_in_its_example_and_not_in_its_counterexample(alert: Alert, tmp_path: Path) -> None:
    rules = prometheus_rule(ARGS)["spec"]
    labels = {"alertname": alert.name, **alert.labels}
    fired: Mapping[str, float] = {"{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}": 1}
    firing = f'group by ({", ".join(labels)}) (ALERTS{{alertstate="firing"}})'
    cases = [
        (changed(HEALTHY, example), [Expected(expression=firing, at="15m", samples=samples)])
        for example, samples in ((alert.fires, fired), (alert.silent, {}))
    ]
    assert contradiction(rules, tmp_path, *cases) is None


def test_the_run_book_has_an_entry_for_each_alert_that_names_the_command_to_type() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    entries = dict(re.findall(r"^### ((?:Gpu|Memory)\w+)$(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL))
    assert set(entries) == told(ARGS)
    assert [name for name, entry in entries.items() if "`kubectl" not in entry and "\nkubectl" not in entry] == []


def test_prometheus_accepts_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(json.dumps(prometheus_rule(ARGS)["spec"]))
    command = [promtool(), "check", "rules", "--lint-fatal", tmp_path / "rules.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("args", "series"),
    [
        (replace(ARGS, places_by_device=False), "gpu_extender_"),
        (replace(ARGS, cron_jobs=()), "kube_cronjob_"),
        (replace(ARGS, ledger=replace(ARGS.ledger, pools=(T4,))), "container_memory_capped|device_memory_cap_able"),
        (
            replace(ARGS, ledger=replace(ARGS.ledger, pools=(replace(CAPPED, floor_mib=0),))),
            r"memory_free_bytes\) < [0-9]",
        ),
        (replace(ARGS, guards=()), "memory_guard_"),
        (replace(ARGS, host_memory=()), "priority_class="),
        (replace(ARGS, recycles_per_hour=None), "gpu_watchdog_"),
    ],
    ids=["no placement", "no CronJob", "no caps", "no floor", "no guard", "no memory pool", "no watchdog"],
)
def test_a_part_that_is_not_declared_has_no_alert(args: AlertsArgs, series: str) -> None:
    def on_them(args: AlertsArgs) -> set[str]:
        return {alert.name for alert in alerts(args) if re.search(series, alert.expression)}

    gone = told(ARGS) - told(args)
    assert gone
    assert gone <= on_them(ARGS)
    assert on_them(args) == set()


def test_a_stack_with_only_whole_gpus_has_no_alert_on_advertised_memory() -> None:
    """Before the fix, the preview of such a stack failed."""
    pools = tuple(pool for pool in ARGS.ledger.pools if pool.sharing is Sharing.WHOLE)
    ledger = replace(ARGS.ledger, pools=pools, seats=(), on_demand=(), unbudgeted=())
    whole = replace(ARGS, ledger=ledger, places_by_device=False)
    assert pools
    assert "GpuCapacityDrift" in told(ARGS) - told(whole)


def test_the_operator_may_add_a_digest_and_leave_out_the_scheduler() -> None:
    graph = declared(Alerts, "alerts", ARGS)
    assert names(graph.children(graph.one("Alerts"))) == {
        "alerts-rule",
        "alerts-pod-monitor",
        "alerts-scheduler-monitor",
        "alerts-kueue-monitor",
        "alerts-dashboard",
    }
    digest = DigestSpec(slack_webhook=SlackWebhook(secret="alerts-webhook"))
    spec = AlertsSpec(digest=digest)
    graph = declared(Alerts, "alerts", replace(ARGS, spec=spec, places_by_device=False, kueue_namespace=None))
    children = graph.children(graph.one("Alerts"))
    assert names(children) == {"alerts-rule", "alerts-pod-monitor", "alerts-dashboard", "alerts-digest"}
