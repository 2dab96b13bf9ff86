"""Runs a real Prometheus in the network of the real node, with prod's PodMonitors and rules.

The module makes the series of kube-state-metrics from the objects of the API server.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import pytest

from components.monitoring.alert import sanitised
from tenancy import names
from tenancy.quantity import parse
from tenancy.units import MIB
from tests.support.e2e.rollout import SYSTEM, Object, Rollout, pods
from tests.support.waiting import eventually
from toolchain.cluster import node
from toolchain.cluster.background import call_repeatedly

MONITORING = f"/apis/monitoring.coreos.com/v1/namespaces/{SYSTEM}"
PLAYED, PLAYED_FREE_MIB = "node-4", 14000
TURN_SECONDS = 2
_PORT, _SERIES_PORT = 9090, 9500
_ALERTS = f"http://127.0.0.1:{_PORT}/api/v1/alerts"
_READ = f"import urllib.request as r; print(r.urlopen('{_ALERTS}', timeout=5).read().decode())"
_SNAKE = {"sourceLabels": "source_labels", "targetLabel": "target_label", "action": "action", "regex": "regex"}
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


class Prometheus:
    def __init__(self, prod: Rollout, folder: Path) -> None:
        self._prod, self._folder = prod, folder
        self._enter = ["nsenter", f"--net=/proc/{prod.cluster.pid_of('node')}/ns/net"]
        self._monitors = prod.items(f"{MONITORING}/podmonitors")
        self.since: dict[str, float] = {}
        self.seen: set[str] = set()

    @contextmanager
    def running(self) -> Iterator["Prometheus"]:
        self._write("rules.json", self._rules())
        self._write("prometheus.json", self._configuration())
        self._show()
        data = f"--storage.tsdb.path={self._folder / 'data'}"
        config = f"--config.file={self._folder / 'prometheus.json'}"
        series = ["-m", "http.server", "--bind=127.0.0.1", f"--directory={self._folder}", str(_SERIES_PORT)]
        commands = [
            [*self._enter, "prometheus", config, data, f"--web.listen-address=127.0.0.1:{_PORT}"],
            [*self._enter, sys.executable, *series],
        ]
        with (self._folder / "log").open("wb") as log:
            processes = [subprocess.Popen(command, stdout=log, stderr=log) for command in commands]
            try:
                eventually(self.alerts, "Prometheus answers")
                with call_repeatedly(self._turn, TURN_SECONDS):
                    yield self
            finally:
                for process in processes:
                    process.kill()
                    process.wait()

    def _turn(self) -> None:
        with suppress(OSError):
            self._show()
        if (alerts := self.alerts()) is not None:
            firing = {str(alert["labels"]["alertname"]) for alert in alerts if alert["state"] == "firing"}
            now = time.monotonic()
            self.since = {name: self.since.get(name, now) for name in firing}
            self.seen |= firing

    def alerts(self) -> list[Object] | None:
        command = [*self._enter, sys.executable, "-IS", "-c", _READ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return None if done.returncode else list(json.loads(done.stdout)["data"]["alerts"])

    def _write(self, name: str, content: object) -> None:
        new = self._folder / f"{name}.new"
        new.write_text(content if isinstance(content, str) else json.dumps(content))
        new.replace(self._folder / name)

    def _rules(self) -> Object:
        (rule,) = self._prod.items(f"{MONITORING}/prometheusrules")
        return {"groups": rule["spec"]["groups"]}

    def _configuration(self) -> Object:
        scrapes: list[Object] = [
            {
                "job_name": "kube-state-metrics",
                "honor_labels": True,
                "metrics_path": "/series.txt",
                "static_configs": [{"targets": [f"127.0.0.1:{_SERIES_PORT}"]}],
            }
        ]
        for monitor in self._monitors:
            name = monitor["metadata"]["name"]
            (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
            relabelings = endpoint.get("relabelings", ())
            scrapes.append(
                {
                    "job_name": name,
                    "scrape_interval": endpoint["interval"],
                    "file_sd_configs": [{"files": [str(self._folder / f"targets-{name}.json")]}],
                    "relabel_configs": [{_SNAKE[key]: value for key, value in each.items()} for each in relabelings],
                }
            )
        times = {"scrape_interval": "15s", "scrape_timeout": "10s"}
        return {"global": times, "rule_files": [str(self._folder / "rules.json")], "scrape_configs": scrapes}

    def _show(self) -> None:
        for monitor in self._monitors:
            self._write(f"targets-{monitor['metadata']['name']}.json", list(self._targets(monitor)))
        self._write("series.txt", "\n".join([*_kube_state(self._prod), *_played(), ""]))

    def _targets(self, monitor: Object) -> Iterator[Object]:
        spec = monitor["spec"]
        (endpoint,), selector = spec["podMetricsEndpoints"], quote(_selector(spec["selector"]))
        for namespace in spec["namespaceSelector"]["matchNames"]:
            for pod in self._prod.items(f"{pods(namespace)}?labelSelector={selector}"):
                address = pod["status"].get("podIP")
                if pod["spec"].get("nodeName") != node.NODE or not address:
                    continue
                for container in pod["spec"]["containers"]:
                    for port in container.get("ports", ()):
                        if port.get("name") == endpoint["port"]:
                            labels = {
                                "__meta_kubernetes_pod_node_name": node.NODE,
                                "namespace": namespace,
                                "pod": pod["metadata"]["name"],
                                "container": container["name"],
                                "endpoint": endpoint["port"],
                            }
                            yield {"targets": [f"{address}:{port['containerPort']}"], "labels": labels}


@contextmanager
def prometheus(prod: Rollout, folder: Path) -> Iterator[Prometheus]:
    if shutil.which("prometheus") is None or shutil.which("nsenter") is None:
        pytest.skip("prometheus or nsenter is not installed: no alert is seen firing (make integration installs it)")
    with Prometheus(prod, folder).running() as running:
        yield running


def _selector(selector: Object) -> str:
    equal = [f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()]
    among = [f"{each['key']} in ({','.join(each['values'])})" for each in selector.get("matchExpressions", ())]
    return ",".join([*equal, *among])


def _line(name: str, value: float, labels: Mapping[str, str]) -> str:
    listed = ",".join(f"{key}={json.dumps(text)}" for key, text in labels.items())
    return f"{name}{{{listed}}} {value}"


def _kube_state(prod: Rollout) -> Iterator[str]:
    for cron_job in prod.items(f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs"):
        last = cron_job.get("status", {}).get("lastSuccessfulTime")
        if last is not None:
            labels = {"namespace": SYSTEM, "cronjob": cron_job["metadata"]["name"]}
            seconds = datetime.fromisoformat(last).timestamp()
            yield _line("kube_cronjob_status_last_successful_time", seconds, labels)
    for daemon_set in prod.items("/apis/apps/v1/daemonsets"):
        metadata, wanted = daemon_set["metadata"], daemon_set["status"].get("desiredNumberScheduled", 0)
        labels = {"namespace": metadata["namespace"], "daemonset": metadata["name"]}
        yield _line("kube_daemonset_status_desired_number_scheduled", wanted, labels)
    for found in prod.items("/api/v1/nodes"):
        for resource, amount in found["status"].get("allocatable", {}).items():
            # Only names of extended resources contain a "/".
            if "/" in resource:
                labels = {"node": found["metadata"]["name"], "resource": sanitised(resource)}
                yield _line("kube_node_status_allocatable", float(parse(amount)), labels)
    for pod in prod.items("/api/v1/pods"):
        yield from _pod(pod)


def _pod(pod: Object) -> Iterator[str]:
    spec, status = pod["spec"], pod["status"]
    place = {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]}
    node_name = spec.get("nodeName", "")
    (owner, *_) = [*pod["metadata"].get("ownerReferences", ()), {"kind": "", "name": ""}]
    made_by = {"created_by_kind": owner["kind"], "created_by_name": owner["name"]}
    priority = {"priority_class": spec.get("priorityClassName", "")}
    yield _line("kube_pod_info", 1, place | {"node": node_name} | made_by | priority)
    for phase in _PHASES:
        yield _line("kube_pod_status_phase", int(status.get("phase") == phase), place | {"phase": phase})
    if any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in status.get("conditions", ())):
        yield _line("kube_pod_status_unschedulable", 1, place)
    for container in spec["containers"]:
        for part in ("requests", "limits"):
            for resource, amount in container.get("resources", {}).get(part, {}).items():
                labels = place | {"container": container["name"], "node": node_name}
                labels |= {"resource": sanitised(resource)}
                yield _line(f"kube_pod_container_resource_{part}", float(parse(amount)), labels)


def _played() -> Iterator[str]:
    device = {"node": PLAYED, "gpu": "0", "uuid": f"GPU-{PLAYED}"}
    yield _line(names.METRIC_DEVICE_FREE, PLAYED_FREE_MIB * MIB, device)
    yield _line(names.METRIC_POOL_FLOOR, 1536 * MIB, {"node": PLAYED, "pool": PLAYED})
    yield _line(names.METRIC_GUARD_API_AGE, 1, {"node": PLAYED})
