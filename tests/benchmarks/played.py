"""Exporters of nodes that kwok plays: what they ask of the API, by their own code, and what they answer."""

import io
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

from agents.exporter.attribution import DeviceUse
from agents.exporter.main import Gauge
from agents.exporter.pod_names import Registrar, Registry
from agents.kube.client import Api, Endpoint
from agents.node.cgroup import Container
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from tenancy import names
from tenancy.units import MIB
from tests.benchmarks.metered import Account
from tests.e2e.rollout import SYSTEM, pods
from tests.support.api_server import QuietServer
from tests.support.exporters import card, gauge
from toolchain.cluster.api import until
from toolchain.cluster.cluster import Cluster

ACCOUNT = Account(names.node_agent_namespace(SYSTEM), names.EXPORTER)
DRIVER_MIB, DEVICE_MIB = 450, 15360


class Pages(QuietServer):
    """One page on every address of loopback; each exporter has a server of its own, which takes less of one reader."""

    request_queue_size = 512

    def __init__(self, exporter: Gauge) -> None:
        super().__init__(("", 0), PageHandler)
        self._exporter, self._made, self._lock = exporter, (-math.inf, ""), threading.Lock()

    def page(self) -> str:
        """As it was within this second."""
        with self._lock:
            at, text = self._made
            if time.monotonic() - at > 1:
                status, text = self._exporter.metrics()
                assert status == HTTPStatus.OK, text
                self._made = time.monotonic(), text
            return text


class PageHandler(BaseHTTPRequestHandler):
    server: Pages

    def do_GET(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.end_headers()
        self.wfile.write(self.server.page().encode())

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


@dataclass(frozen=True)
class Exporters:
    """Their informers, and what these said."""

    informers: Sequence[Registrar]
    said: io.StringIO


@contextmanager
def watching(cluster: Cluster, folder: Path, nodes: Sequence[str], patience_seconds: float) -> Iterator[Exporters]:
    """An exporter's informer for each node, under the exporters' account, once each knows its node's slice."""
    mount, server = ACCOUNT.mounted(cluster, folder), urlsplit(cluster.api.server)
    assert server.hostname
    assert server.port
    endpoint = Endpoint(host=server.hostname, port=server.port, token_file=mount / "token", ca_file=mount / "ca.crt")
    clock, said = Clock(), io.StringIO()
    log = Log(names.EXPORTER, said)
    exporters = [
        Registrar(api=Api(endpoint, clock=clock), node=node, ledger_namespace=SYSTEM, clock=clock, log=log, slices=True)
        for node in nodes
    ]
    threads = [threading.Thread(target=exporter.informer.run, daemon=True) for exporter in exporters]
    for thread in threads:
        thread.start()
    try:
        until(
            lambda: known(exporters) == len(nodes), patience_seconds, "each knows its slice", lambda: known(exporters)
        )
        yield Exporters(exporters, said)
    finally:
        for exporter in exporters:
            exporter.informer.stop()
        for thread in threads:
            thread.join()


def known(exporters: Sequence[Registrar]) -> int:
    """How many know their node's slice."""
    return sum(bool(exporter.last.slices) for exporter in exporters)


@contextmanager
def answering(cluster: Cluster, registry: Registry) -> Iterator[int]:
    """A T4 whose pods use what they declared, on the address of every exporter's pod. Yields the port."""
    selector = f"labelSelector={names.LABEL_NAME}%3D{names.EXPORTER}"
    found = cluster.api.get(f"{pods(ACCOUNT.namespace)}?{selector}") or {"items": []}
    for number, pod in enumerate(found["items"]):
        address = f"127.1.{number // 250}.{number % 250 + 1}"
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        cluster.api.patch(f"{pods(ACCOUNT.namespace, pod['metadata']['name'])}/status", {"status": status})
    with Pages(shown(registry)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def shown(registry: Registry) -> Gauge:
    used_mib = {
        Container(pod.uid, next(iter(pod.containers), "")): pod.declared_mib
        for pod in registry.roster.pods
        if pod.declared_mib
    }
    device = card(free_mib=DEVICE_MIB - DRIVER_MIB - sum(used_mib.values()))
    used = {container: mib * MIB for container, mib in used_mib.items()}
    return gauge(DeviceUse(device=device, used_bytes=used), age_seconds=1, registry=registry)
