"""The rules' text on the recorded graph, and their behaviour in Prometheus' own rule tests."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.alerts import Alerts, AlertsArgs, AlertsSpec, prometheus_rule
from tests.components.given import CLUSTER, LEDGER, NODES, SYSTEM, T4, declared
from tests.engine import Graph, names

MIB = 2**20
CRON_JOBS = ("gpumem-reconcile", "gpu-vram-watchdog")
A10 = replace(T4, name="a10", memory_mib=23028, reserve_mib=1028, floor_mib=2048, node_selector={"zone": "c"})
ARGS = AlertsArgs(
    spec=AlertsSpec(labels={"release": "prometheus"}), cluster=CLUSTER, ledger=LEDGER, cron_jobs=CRON_JOBS
)
TWO_POOLS = replace(ARGS, ledger=replace(LEDGER, pools=(*LEDGER.pools, A10)))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Alerts, "alerts", ARGS)


def rules(args: AlertsArgs) -> list[dict[str, Any]]:
    (group,) = prometheus_rule(args)["spec"]["groups"]
    return list(group["rules"])


def test_it_declares_the_rules_and_the_scrape_they_rest_on(graph: Graph) -> None:
    assert names(graph.children(graph.one("Alerts"))) == {"alerts-rule", "alerts-pod-monitor"}
    for kind in ("PrometheusRule", "PodMonitor"):
        metadata = graph.one(kind).inputs["metadata"]
        assert metadata["namespace"] == SYSTEM
        assert metadata["labels"]["release"] == "prometheus"


def test_the_operator_may_put_them_into_another_namespace() -> None:
    graph = declared(Alerts, "alerts", replace(ARGS, spec=AlertsSpec(namespace="monitoring")))
    assert graph.one("PrometheusRule").inputs["metadata"]["namespace"] == "monitoring"


def test_the_scrape_finds_the_exporters_pods_and_names_their_nodes(graph: Graph) -> None:
    spec = graph.one("PodMonitor").inputs["spec"]
    assert spec["namespaceSelector"] == {"matchNames": [NODES]}
    assert spec["selector"] == {"matchLabels": {"app.kubernetes.io/name": "gpu-memory-exporter"}}
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"
    assert endpoint["relabelings"] == [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}]


def test_each_alert_says_how_bad_it_is_what_it_saw_and_where_to_read_on() -> None:
    for rule in rules(TWO_POOLS):
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert len(rule["annotations"]["description"]) > len(rule["annotations"]["summary"])
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"


def test_no_cron_job_no_heartbeat_alert() -> None:
    assert "GpuAgentSilent" not in {rule["alert"] for rule in rules(replace(ARGS, cron_jobs=()))}


def test_a_pool_without_a_floor_has_no_floor_alert() -> None:
    bare = replace(LEDGER, pools=(replace(T4, floor_mib=0),))
    assert "GpuMemoryBelowFloor" not in {rule["alert"] for rule in rules(replace(ARGS, ledger=bare))}


def test_its_output_lists_the_alerts(graph: Graph) -> None:
    assert graph.outputs_of(graph.one("Alerts")) == {
        "alerts": [
            "GpuAgentSilent",
            "GpuAgentSilent",
            "GpuTelemetryMissing",
            "GpuMemoryBelowFloor",
            "GpuCapacityDrift",
            "GpuMemoryPending",
        ]
    }


def last_success(cron_job: str, values: str) -> dict[str, str]:
    labels = f'namespace="{SYSTEM}",cronjob="{cron_job}",instance="ksm"'
    return {"series": f"kube_cronjob_status_last_successful_time{{{labels}}}", "values": values}


def free(node: str, mib: int, gpu: int = 0) -> dict[str, str]:
    labels = f'node="{node}",gpu="{gpu}",uuid="GPU-{node}-{gpu}",pod="exporter"'
    return {"series": f"gpu_device_memory_free_bytes{{{labels}}}", "values": f"{mib * MIB}x30"}


def allocatable(node: str, mib: int, instance: str = "ksm") -> dict[str, str]:
    labels = f'node="{node}",resource="example_com_gpumem",unit="integer",instance="{instance}"'
    return {"series": f"kube_node_status_allocatable{{{labels}}}", "values": f"{mib}x30"}


def pending(phase: str) -> list[dict[str, str]]:
    pod = 'namespace="chat",pod="chat-0"'
    return [
        {
            "series": f'kube_pod_container_resource_requests{{{pod},container="c",resource="example_com_gpumem"}}',
            "values": "5000x30",
        },
        *(
            {"series": f'kube_pod_status_phase{{{pod},phase="{p}"}}', "values": f"{int(p == phase)}x30"}
            for p in ("Pending", "Running")
        ),
    ]


BEATING = [last_success(name, "0+60x30") for name in CRON_JOBS]  # at each minute, that minute
HEALTHY = [*BEATING, free("a", 4000), allocatable("a", 14000), *pending("Running")]
TWO_HEALTHY = [*BEATING, free("a", 4000), free("c", 4000), allocatable("a", 14000), allocatable("c", 22000)]

# What is there, and which alerts fire after 15 minutes. Each fault sets off its own alert and no other.
CASES: dict[str, tuple[AlertsArgs, list[dict[str, str]], list[str]]] = {
    "all is well": (ARGS, HEALTHY, []),
    "kube-state-metrics runs twice": (ARGS, [*HEALTHY, allocatable("a", 14000, "other")], []),
    "all is well in two pools": (TWO_POOLS, TWO_HEALTHY, []),
    "one agent stopped succeeding": (
        ARGS,
        [last_success(CRON_JOBS[0], "0+60x30"), last_success(CRON_JOBS[1], "0x30"), *HEALTHY[2:]],
        ['alertname="GpuAgentSilent", cronjob="gpu-vram-watchdog"'],
    ),
    "one agent never succeeded": (ARGS, HEALTHY[1:], ['alertname="GpuAgentSilent", cronjob="gpumem-reconcile"']),
    "no exporter answers": (ARGS, [*BEATING, allocatable("a", 14000)], ['alertname="GpuTelemetryMissing"']),
    "one exporter of two answers": (
        TWO_POOLS,
        [s for s in TWO_HEALTHY if s != free("c", 4000)],
        ['alertname="GpuTelemetryMissing"'],
    ),
    "a device is at its floor": (ARGS, [*BEATING, free("a", 1536), allocatable("a", 14000)], []),
    "a device is below its floor": (
        ARGS,
        [*BEATING, free("a", 1535), allocatable("a", 14000)],
        ['alertname="GpuMemoryBelowFloor", pool="t4"'],
    ),
    "of two pools each has its own floor": (
        TWO_POOLS,
        [*BEATING, free("a", 1600), free("c", 1600), allocatable("a", 14000), allocatable("c", 22000)],
        ['alertname="GpuMemoryBelowFloor", pool="a10"'],
    ),
    "nothing is advertised": (ARGS, [*BEATING, free("a", 4000)], ['alertname="GpuCapacityDrift"']),
    "less is advertised": (
        ARGS,
        [*BEATING, free("a", 4000), allocatable("a", 13999)],
        ['alertname="GpuCapacityDrift"'],
    ),
    "a pod waits for memory": (
        ARGS,
        [*HEALTHY[:4], *pending("Pending")],
        ['alertname="GpuMemoryPending", pod="chat-0"'],
    ),
}


@pytest.fixture(scope="module")
def promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool is not installed: the alerts' behaviour is NOT tested (Debian: apt install prometheus)")
    return path


def run(promtool: str, *arguments: str | Path) -> None:
    result = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("args", [ARGS, TWO_POOLS], ids=["one pool", "two pools"])
def test_prometheus_accepts_the_rules(promtool: str, tmp_path: Path, args: AlertsArgs) -> None:
    (tmp_path / "rules.yaml").write_text(json.dumps(prometheus_rule(args)["spec"]))
    run(promtool, "check", "rules", "--lint-fatal", tmp_path / "rules.yaml")


@pytest.mark.parametrize("case", CASES)
def test_exactly_the_right_alerts_fire_when(promtool: str, tmp_path: Path, case: str) -> None:
    args, series, expected = CASES[case]
    (tmp_path / "rules.yaml").write_text(json.dumps(prometheus_rule(args)["spec"]))
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname, cronjob, pool, pod) (ALERTS{alertstate="firing"})',
                        "eval_time": "15m",
                        "exp_samples": [{"labels": f"{{{labels}}}", "value": 1} for labels in expected],
                    }
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(json.dumps(test))
    run(promtool, "test", "rules", tmp_path / "test.yaml")
