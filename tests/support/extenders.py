"""Runs the extender as a process on a fake cluster, and sends requests to its two ports."""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.kube.slices import SLICES
from agents.telemetry.device import Device, Survey
from agents.telemetry.resourceslice import PublishingNode, slice_of
from tenancy.units import MIB
from tests.support.api_server import ServedOverTls
from tests.support.fake_cluster import NAMES, SYSTEM, FakeCluster
from tests.support.waiting import PATIENCE_SECONDS, eventually
from toolchain.cluster.process import free_ports


@dataclass(frozen=True)
class Extender:
    verbs_port: int
    http_port: int
    process: "subprocess.Popen[bytes]"

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def post(self, verb: str, arguments: object) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.verbs_port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("POST", f"/{verb}", json.dumps(arguments))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def filter(self, mib: int, uid: str = "u", nodes: tuple[str, ...] = ("k8s-node1",)) -> Any:
        return self.post("filter", {"Pod": pod(mib, uid), "NodeNames": nodes})

    def bind(self, uid: str, node: str = "k8s-node1") -> Any:
        return self.post("bind", {"PodNamespace": "team", "PodName": uid, "PodUID": uid, "Node": node})


def pod(mib: int, uid: str = "u") -> dict[str, Any]:
    spec = {"containers": [{"resources": {"limits": {NAMES.gpumem: str(mib)}}}]}
    return {"metadata": {"uid": uid, "namespace": "team"}, "spec": spec}


def publish(cluster: FakeCluster, *mib: int, node: str = "k8s-node1") -> None:
    devices = tuple(
        Device(gpu=index, uuid=f"GPU-{index}", total_bytes=size * MIB, used_bytes=0, free_bytes=0)
        for index, size in enumerate(mib)
    )
    host = PublishingNode(name=node, uid=f"uid-{node}")
    found: dict[str, Any] = {**slice_of(Survey(devices=devices), host, NAMES, None)}
    found["metadata"] = {**found["metadata"], "resourceVersion": cluster.next_version()}
    cluster.objects[f"{SLICES}/{found['metadata']['name']}"] = found
    cluster.tell("MODIFIED", SLICES, found)


@contextmanager
def running(served: ServedOverTls, zipapp: Path, **environment: str) -> Iterator[Extender]:
    verbs_port, http_port = free_ports(2)
    served.cluster.watches_last = True
    environ = {
        "PATH": os.environ["PATH"],
        "VERBS_PORT": str(verbs_port),
        "HTTP_PORT": str(http_port),
        "LEASE": "",
        "SCORING": "best_fit",
        "HOLD_SECONDS": "60",
        "LEDGER_NAMESPACE": SYSTEM,
        "EXPORTER_NAMESPACE": "nodes",
        "EXPORTER_PORT": "9401",
        "POD_NAME": "scheduler-0",
        **served.environ(),
        **environment,
    }
    command = [sys.executable, "-I", str(zipapp), "extender"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as process:
        extender = Extender(verbs_port, http_port, process)
        try:
            eventually(lambda: process.poll() is not None or extender.get("/readyz")[0] == 200)
            yield extender
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)
