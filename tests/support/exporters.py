"""Serves fake exporters in memory. Tests choose their devices."""

import io
from collections.abc import Iterator
from contextlib import contextmanager

from agents.exporter.attribution import DeviceUse, NodeUse
from agents.exporter.main import DeviceReader
from agents.exporter.registry import Registry, RegistryInformer
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.telemetry.device import Device
from tenancy.names import EXPORTER, LABEL_NAME
from tenancy.units import MIB
from tests.support.fake_cluster import T4, FakeTime, Served
from tests.support.in_memory_http import serving


def card(free_mib: int, gpu: int = 0) -> Device:
    free, total = free_mib * MIB, 15360 * MIB
    return Device(gpu=gpu, uuid=f"GPU-{gpu}", total_bytes=total, used_bytes=total - free, free_bytes=free)


def device_reader(
    *cards: Device | DeviceUse, age_seconds: float = 0, registry: Registry | None = None, frozen: bool = False
) -> DeviceReader:
    now = FakeTime()

    def later() -> float:
        now.seconds += 0 if frozen else 0.001
        return now.seconds

    uses = tuple(card if isinstance(card, DeviceUse) else DeviceUse(device=card, used_bytes={}) for card in cards)
    log = Log("test", io.StringIO())
    informer = RegistryInformer(
        api=None, node="", ledger_namespace="", clock=now.clock(), log=log, last=registry or Registry()
    )
    shown = DeviceReader(
        read=lambda: NodeUse(uses), registry=informer, clock=Clock(monotonic=later), interval_seconds=60
    )
    shown.sample()
    now.seconds = age_seconds
    return shown


def add_exporter(served: Served, node: str = "k8s-node1", ip: str = "10.0.0.9", **status: str) -> None:
    served.cluster.pods.append(
        {
            "kind": "Pod",
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
def measured(served: Served, *cards: Device | DeviceUse, frozen: bool = False) -> Iterator[None]:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    add_exporter(served, ip="127.0.0.1")
    with serving(device_reader(*cards, frozen=frozen)) as served.exporter_port:
        yield
