"""Tests the queries of the dashboard and of the alerts in a real Prometheus, which scrapes the real exporter."""

import http.client
import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agents.exporter.attribution import DeviceUse
from agents.exporter.registry import Registry
from agents.kube.nodes import Node
from agents.node.cgroup import Container
from agents.node.pods import NodePod, NodePods
from agents.runtime.http_server import MetricsServer
from components.monitoring.args import AlertsArgs, AlertsSpec
from components.monitoring.component import prometheus_rule
from components.monitoring.dashboard import read
from components.monitoring.pod_monitors import pod_monitor
from tenancy import names
from tenancy.units import MIB
from tests.support.exporters import card, device_reader
from tests.support.given import CLUSTER, LEDGER, SYSTEM
from tests.support.http_get import get
from tests.support.waiting import PATIENCE_SECONDS, becomes, eventually
from toolchain.cluster.process import free_ports

ARGS = AlertsArgs(
    spec=AlertsSpec(),
    cluster=CLUSTER,
    ledger=LEDGER,
    cron_jobs=(names.WATCHDOG,),
    recycles_per_hour=6,
)
CHAT = NodePod(namespace="chat", name="chat-0", uid="u", group_uid="u", containers={"a": "model"}, declared_mib=5000)
USE = DeviceUse(device=card(4000), used_bytes={Container("u", "a"): 6000 * MIB, Container("new", "b"): 4000 * MIB})
REGISTRY = Registry(NodePods((CHAT,)), LEDGER, (), Node(name="n", uid="node", labels=LEDGER.pools[0].node_selector))
MODEL = read()
PANELS = MODEL["panels"]
QUERIES = {(panel["title"], each["legendFormat"]): each["expr"] for panel in PANELS for each in panel["targets"]}


class KubeStateMetrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        labels = f'namespace="{SYSTEM}",cronjob="{names.WATCHDOG}"'
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(
            f"kube_cronjob_status_last_successful_time{{{labels}}} {time.time():.0f}\n"
            'kube_node_status_allocatable{node="k8s-node1",resource="example_com_gpumem"} 14000\n'.encode()
        )

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


def relabel_configs() -> list[dict[str, Any]]:
    (endpoint,) = pod_monitor(ARGS)["spec"]["podMetricsEndpoints"]
    spelled = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return [{spelled.get(key, key): value for key, value in each.items()} for each in endpoint["relabelings"]]


def configuration(exporter: int, state: int) -> dict[str, Any]:
    pod = {"namespace": "nodes", "pod": "gpu-memory-exporter-x", "container": "exporter", "endpoint": "metrics"}
    labels = {**pod, "__meta_kubernetes_pod_node_name": "k8s-node1"}
    target = {"targets": [f"127.0.0.1:{exporter}"], "labels": labels}
    return {
        # On a busy machine, a scrape takes longer.
        "global": {"scrape_interval": "3s", "scrape_timeout": "3s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": "exporter", "static_configs": [target], "relabel_configs": relabel_configs()},
            {"job_name": "kube-state-metrics", "static_configs": [{"targets": [f"127.0.0.1:{state}"]}]},
        ],
    }


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed: the dashboard is NOT tested (make integration installs it)")
    folder = tmp_path_factory.mktemp("prometheus")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with (
        MetricsServer(0, device_reader(USE, registry=REGISTRY)) as exporter,
        ThreadingHTTPServer(("127.0.0.1", 0), KubeStateMetrics) as state,
    ):
        for server in (exporter, state):
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        targets = (exporter.server_address[1], state.server_address[1])
        (folder / "prometheus.yml").write_text(json.dumps(configuration(*targets)))
        (folder / "rules.yaml").write_text(json.dumps(prometheus_rule(ARGS)["spec"]))
        arguments = ("--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}")
        with subprocess.Popen([program, *arguments], cwd=folder) as process:
            try:
                query(f"http://{address}", "count(up == 1) == 2 and on () gpu_memory_sample_age_seconds")
                yield f"http://{address}"
            finally:
                process.terminate()
                process.wait(PATIENCE_SECONDS)
                exporter.shutdown()
                state.shutdown()


def answer(address: str, path: str, **parameters: str) -> Any:
    url = f"{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    status, body = get(url)
    return json.loads(body)["data"] if status == http.client.OK else {}


def query(address: str, expression: str) -> list[dict[str, Any]]:
    """Waits for a result. On a busy machine, a scrape may fail, and the series are away until the next one."""
    return list(eventually(lambda: answer(address, "query", query=expression).get("result")))


def with_all(expression: str) -> str:
    return re.sub(r"\$\w+", ".*", expression)


@pytest.mark.parametrize(("panel", "legend"), QUERIES)
def test_a_panel_shows_something_with_every_label_of_its_legend(prometheus: str, panel: str, legend: str) -> None:
    shown = query(prometheus, with_all(QUERIES[panel, legend]))
    labels = set(re.findall(r"\{\{(\w+)\}\}", legend))
    assert all(labels <= series["metric"].keys() for series in shown)


def test_samples_have_the_labels_of_the_measured_pod_and_of_the_node(prometheus: str) -> None:
    (known,) = query(prometheus, f'{names.METRIC_POD_USED}{{pod_uid="u"}}')
    labels = {"namespace": "chat", "pod": "chat-0", "container": "model", "node": "k8s-node1", "gpu": "0"}
    assert labels.items() <= known["metric"].items()
    (new,) = query(prometheus, f'{names.METRIC_POD_USED}{{pod_uid="new"}}')
    assert not {"namespace", "pod", "container", "exported_pod"} & new["metric"].keys()
    (device,) = query(prometheus, names.METRIC_DEVICE_FREE)
    assert device["metric"].keys() == {"__name__", "instance", "job", "node", "gpu", "uuid"}


def test_every_alert_is_evaluated_without_an_error_and_fires_for_what_is_there(prometheus: str) -> None:
    def told() -> set[tuple[str, str]]:
        (group,) = (each for each in answer(prometheus, "rules")["groups"] if each["name"] == names.ALERTS)
        return {(each["name"], each["health"]) for each in group["rules"] if each["alerts"] or each["health"] != "ok"}

    becomes(told, {("GpuPodOverBudget", "ok")})


@pytest.mark.parametrize(("name", "values"), [("node", {"k8s-node1"}), ("gpu", {"0"}), ("pool", {"t4"})])
def test_the_dashboards_variables_offer_the_measured_values(prometheus: str, name: str, values: set[str]) -> None:
    (variable,) = (each for each in MODEL["templating"]["list"] if each["name"] == name)
    found = re.fullmatch(rf"label_values\((.+), {name}\)", variable["query"])
    assert found
    assert {series["metric"][name] for series in query(prometheus, with_all(found[1]))} == values
