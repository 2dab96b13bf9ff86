"""Simulates a node with NVIDIA's container toolkit, and the memory limits of NVIDIA's driver."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.runtime import exposition
from tenancy import names
from tenancy.units import MIB
from tests.support.e2e.prometheus import Prometheus, prometheus
from tests.support.e2e.rollout import Object, Rollout, pods
from tests.support.paths import ROOT
from tests.support.waiting import eventually
from tests.support.workspace import workspace
from toolchain.cluster import cluster, fake_nvml, node, nvidia
from toolchain.cluster.api import wait_until
from toolchain.cluster.extent import Extent
from toolchain.cluster.image import agent_image

DOMAIN = "example.com"
OURS = names.Names(DOMAIN)
GPUMEM, GPU_COUNT, UUIDS = OURS.gpumem, OURS.gpu_count, OURS.device_uuid
GPUS = ("GPU-0", "GPU-1")
TOTAL_MIB = 24564
NODE = f"/api/v1/nodes/{node.NODE}"
SLICE = f"/apis/resource.k8s.io/v1/resourceslices/gpumem.{DOMAIN}-{node.NODE}"
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.memory": str(TOTAL_MIB),
    "nvidia.com/gpu.count": str(len(GPUS)),
}
SERVED_SECONDS = 20
MISSING, UNABLE = "GpuCapMissing", "GpuCapUnable"
FIRES_SECONDS = {MISSING: 60, UNABLE: 100}
MARK = f"caps-{os.getpid()}"
MODEL = "import signal; print(open('/opt/nvidia/limits').read(), flush=True); signal.sigwait([signal.SIGTERM])"
READ = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"

Reasons = Mapping[tuple[str, str, str], str]


@dataclass
class Caps:
    stack: Rollout
    alerts: Prometheus
    rows: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def libraries(self) -> Path:
        return nvidia.libraries(self.stack.cluster.folder)

    def show(self, *lines: str, accounting: str = "accounting misc") -> None:
        device = [(f"device {uuid} {TOTAL_MIB * MIB} {20000 * MIB} {4564 * MIB}", accounting) for uuid in GPUS]
        fake_nvml.write(self.libraries / "card", "\n".join(["0", *(x for d in device for x in (*d, *lines))]) + "\n")

    def show_on(self, uuid: str, line: str) -> None:
        self.show()
        text = (self.libraries / "card").read_text()
        fake_nvml.write(self.libraries / "card", re.sub(rf"(device {uuid} .*\n)", rf"\1{line}\n", text))

    def limits(self) -> list[tuple[str, str, int]]:
        lines = [line.split() for line in (self.libraries / "limits").read_text().splitlines()]
        return [(uuid, directory, int(hard) // MIB) for _, uuid, directory, _, hard in lines]

    def create(self, namespace: str, manifest: Object) -> Object:
        return self.stack.cluster.api.create(pods(namespace), manifest)

    def delete(self, namespace: str, name: str) -> None:
        path = pods(namespace, name)
        self.stack.cluster.api.request("DELETE", f"{path}?gracePeriodSeconds=0")
        eventually(lambda: self.stack.cluster.api.get(path) is None, f"{name} is gone")

    def state(self, namespace: str, name: str) -> Object:
        return self.stack.get(pods(namespace, name))["status"]

    def started(self, namespace: str, name: str) -> Mapping[str, str]:
        def ids() -> dict[str, str]:
            found = self.state(namespace, name).get("containerStatuses", [])
            running = {
                each["name"]: each["containerID"].partition("://")[2] for each in found if "running" in each["state"]
            }
            return running if found and len(running) == len(found) else {}

        return dict(eventually(ids, f"{name} runs", lambda: self.state(namespace, name)))

    def exporter(self) -> str:
        for pod in self.stack.items(pods(f"{names.node_agent_namespace('gpu-tenancy-system')}")):
            address = pod["status"].get("podIP")
            if "exporter" in pod["metadata"]["name"] and address and "deletionTimestamp" not in pod["metadata"]:
                return str(address)
        return ""

    def samples(self) -> list[exposition.Sample]:
        enter = ["nsenter", f"--net=/proc/{self.stack.cluster.pid_of('node')}/ns/net"]
        url = f"http://{self.exporter()}:9401/metrics"
        done = subprocess.run(
            [*enter, sys.executable, "-IS", "-c", READ, url], capture_output=True, text=True, check=False
        )
        return list(exposition.parse(done.stdout.rstrip("\n") + "\n")) if done.returncode == 0 else []

    def reasons(self) -> Reasons:
        return {
            (s.labels["pod"], s.labels["container"], s.labels["uuid"]): "" if s.value == 1 else s.labels["reason"]
            for s in self.samples()
            if s.name == names.METRIC_CAPPED
        }

    def served(self, fault: str, reason: str, shown: Callable[[], bool], *alerts: str, since: float) -> None:
        wait_until(shown, SERVED_SECONDS * 3, f"{fault}: {reason}", self.reasons)
        served = time.monotonic() - since
        fires = dict.fromkeys(FIRES_SECONDS, "-")
        for alert in alerts:
            limit = FIRES_SECONDS[alert]
            wait_until(lambda: self.firing(alert, reason), limit * 2, f"{fault}: {alert} fires", self.alerts.alerts)  # noqa: B023
            seconds = time.monotonic() - since
            assert seconds <= limit, f"{fault}: {alert} after {seconds:.0f} s"
            fires[alert] = f"{seconds:.0f}"
        assert served <= SERVED_SECONDS, f"{fault}: {reason} after {served:.0f} s"
        self.rows.append((fault, f"`{reason}`" if reason else "capped", f"{served:.0f}", *fires.values()))
        print("\n" + _row(self.rows[-1]), flush=True)

    def over(self, reason: str) -> None:
        eventually(lambda: not self.firing(MISSING, reason), f"{MISSING} of {reason} is over", self.reasons)

    def firing(self, alert: str, reason: str) -> list[Mapping[str, str]]:
        found = [each["labels"] for each in self.alerts.alerts() or () if each["state"] == "firing"]
        return [labels for labels in found if labels["alertname"] == alert and labels.get("reason") == reason]


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def model(name: str, gpumem: str | None = None, devices: str | None = None) -> dict[str, Any]:
    limits = {**({GPUMEM: gpumem} if gpumem else {}), **({GPU_COUNT: devices} if devices else {})}
    command = ["python", "-IS", "-c", MODEL if gpumem else "import signal; signal.pause()", f"{MARK}:{name}"]
    return {"name": name, "image": agent_image(), "command": command, "resources": {"limits": limits}}


def pod(name: str, *containers: Object) -> dict[str, Any]:
    spec = {"containers": list(containers), "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def processes(container: str) -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if (folder / "cmdline").read_text().rstrip("\0").endswith(f"\0{MARK}:{container}"):
                (line,) = (x for x in (folder / "status").read_text().splitlines() if x.startswith("NSpid:"))
                if len(line.split()) >= 4:
                    yield int(folder.name), int(line.split()[-2])


def enforced(config: dict[str, Any]) -> None:
    config["pools"]["gpu"] |= {"node_selector": {"kubernetes.io/hostname": node.NODE}, "device_count": len(GPUS)}
    config["residents"]["photo-search"] |= {"replicas": 3}


@contextmanager
def capped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caps]:
    if reason := node.why_not() or nvidia.why_not():
        pytest.skip(f"NVIDIA'S RUNTIME IS NOT RUN: {reason}")
    with cluster.running(tmp_path_factory.mktemp("cluster"), extent=Extent.GPU_NODE) as held:
        libraries = nvidia.libraries(held.folder)
        libraries.mkdir(parents=True)
        if not fake_nvml.can_build():
            pytest.skip("NO C COMPILER: NVIDIA's runtime is not run")
        fake_nvml.build(libraries)
        nvidia.write_cdi(held.folder, GPUS)
        stack = Rollout(held, workspace(tmp_path_factory.mktemp("enforced")))
        stack.workspace.stack_file.write_text((ROOT / "examples" / "enforced.yaml").read_text())
        stack.workspace.change(enforced)
        stack.init()
        found = Caps(stack, Prometheus.__new__(Prometheus))
        found.show()
        held.api.patch(NODE, {"metadata": {"labels": LABELS}, "spec": {"taints": []}})
        print(stack.gated_up().text)
        eventually(lambda: held.api.get(SLICE), "the exporter publishes the devices")
        with prometheus(stack, tmp_path_factory.mktemp("prometheus")) as alerts:
            found.alerts = alerts
            yield found
        print("", _row(("fault", "shown as", "after s", *(f"{alert} after s" for alert in FIRES_SECONDS))), sep="\n")
        print(*map(_row, (("---",) * 5, *found.rows)), sep="\n")
