"""Exporters for the agents that read them: the real server on loopback, over devices that a test makes up."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agents.attribution import DeviceUse
from agents.clock import Clock
from agents.device import MIB, Device
from agents.exporter import Gauge
from agents.registry import Registrar, Registry
from agents.scrape import Server
from tenancy.names import EXPORTER, LABEL_NAME
from tests.agents.cluster import SYSTEM, T4, FakeTime, Served
from tests.agents.fake_nvml import FakeNvml


@dataclass(frozen=True)
class Shipped:
    """A running exporter."""

    process: "subprocess.Popen[str]"
    port: int


def card(free_mib: int, gpu: int = 0) -> Device:
    """A T4 with so much free memory."""
    free, total = free_mib * MIB, 15360 * MIB
    return Device(gpu=gpu, uuid=f"GPU-{gpu}", total_bytes=total, used_bytes=total - free, free_bytes=free)


def gauge(
    *cards: Device | DeviceUse, age_seconds: float = 0, registry: Registry | None = None, frozen: bool = False
) -> Gauge:
    """A gauge whose last reading of these devices is so old, and unless it is `frozen` a millisecond more with each
    look; a bare device is one that nobody uses."""
    now = FakeTime()

    def later() -> float:
        now.seconds += 0 if frozen else 0.001
        return now.seconds

    uses = tuple(card if isinstance(card, DeviceUse) else DeviceUse(device=card, used_bytes={}) for card in cards)
    registrar = Registrar(api=None, node="", ledger_namespace="", clock=now.clock(), last=registry or Registry())
    shown = Gauge(read=lambda: uses, registrar=registrar, clock=Clock(monotonic=later), interval_seconds=60)
    shown.sample()
    now.seconds = age_seconds
    return shown


def add_exporter(served: Served, node: str = "k8s-node1", ip: str = "10.0.0.9", **status: str) -> None:
    served.cluster.pods.append(
        {
            "metadata": {
                "name": f"exporter-{ip}",
                "namespace": "nodes",
                "uid": f"uid-{ip}",
                "creationTimestamp": "2026-06-02T06:00:00Z",
                "labels": {LABEL_NAME: EXPORTER},
            },
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running", "podIP": ip, **status},
        }
    )


@contextmanager
def measured(
    served: Served, *cards: Device | DeviceUse, registry: Registry | None = None, frozen: bool = False
) -> Iterator[None]:
    """The ledger, its node, and an exporter there that shows these devices on `served.exporter_port`."""
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    add_exporter(served, ip="127.0.0.1")
    with Server(0, gauge(*cards, registry=registry, frozen=frozen)) as server:
        served.exporter_port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield
        server.shutdown()
        thread.join()


@contextmanager
def shipped_exporter(served: Served, zipapp: Path, nvml: FakeNvml) -> Iterator[Shipped]:
    """The real exporter of the node, from its zipapp, on a free port."""
    with socket.create_server(("", 0)) as probe:
        port = probe.getsockname()[1]
    environ = {
        "PORT": str(port),
        "INTERVAL_SECONDS": "1",
        "NODE_NAME": "k8s-node1",
        "LEDGER_NAMESPACE": SYSTEM,
        "PUBLISH_DEVICES": "true",
        **served.environ(),
        **nvml.environ,
    }
    with subprocess.Popen(
        [sys.executable, "-I", str(zipapp), "exporter"], env=environ, stdout=subprocess.PIPE, text=True
    ) as started:
        try:
            yield Shipped(started, port)
        finally:
            started.kill()
