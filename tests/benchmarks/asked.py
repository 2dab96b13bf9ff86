"""The clusters of tests/benchmarks/gpumem.py: their objects, on a real API server for which nobody plays nodes, and
their exporters, whose pages come through it."""

import json
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from agents.extender.cache.informers import SLICES
from agents.kube.nodes import NODES
from tenancy.ledger import Ledger, OnDemand, Pool, Seat
from tenancy.names import EXPORTER, LABEL_NAME, LEDGER, LEDGER_KEY, Names, node_agent_namespace
from tests.benchmarks.load import pod
from tests.benchmarks.scale import each
from tests.e2e.rollout import pods
from tests.support.api_server import QuietServer
from toolchain.cluster import cluster
from toolchain.cluster.cluster import Cluster
from toolchain.cluster.extent import Extent

NAMES = Names("example.com")
SYSTEM = "gpu-tenancy-system"
EXPORTERS = node_agent_namespace(SYSTEM)
PORT = 9401
DEVICE_MIB, RESERVE_MIB, DRIVER_MIB, SEAT_MIB, USED_MIB = 24576, 1024, 450, 2000, 1800
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
WAITS = "waits"

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Size:
    """Nodes of so many devices; tenants with a gate each and, together, so many seats; a seat's replicas are pods."""

    nodes: int
    devices: int
    tenants: int
    seats: int
    pods: int

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {self.pods} pods"

    def place(self, number: int) -> tuple[int, int]:
        """A pod's node and device."""
        return number % self.nodes, number // self.nodes % self.devices

    def tenant(self, number: int) -> str:
        """A pod's."""
        return f"team-{number % self.seats % self.tenants}"

    def on(self, node: int, device: int) -> Iterator[int]:
        """The pods there."""
        return (number for number in range(node, self.pods, self.nodes) if self.place(number) == (node, device))


@contextmanager
def running(size: Size) -> Iterator[Cluster]:
    """With the API server reaching the exporters' addresses, which are nowhere, as it would a pod's: by the forward
    proxy of its environment, for it talks to no pod on loopback."""
    with Pages(size) as pages, tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        with (
            patch.dict(os.environ, {"HTTP_PROXY": f"http://127.0.0.1:{pages.server_address[1]}"}),
            cluster.running(Path(folder), extent=Extent.API_SERVER) as made,
        ):
            create(made, size, pages.uids)
            yield made
        pages.shutdown()


class Pages(QuietServer):
    """What every exporter serves, by its address. `uids` are those of the pods with GPU memory, by number."""

    request_queue_size = 128

    def __init__(self, size: Size) -> None:
        super().__init__(("127.0.0.1", 0), PageHandler)
        self.size = size
        self.uids: dict[int, str] = {}


class PageHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body at once, or the page waits for the kernel's delayed acknowledgement
    server: Pages

    def do_GET(self) -> None:
        (*_, high, low) = map(int, str(urlsplit(self.path).hostname).split("."))
        body = page(high * 250 + low - 1, self.server.size, self.server.uids).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


def page(node: int, size: Size, uids: Mapping[int, str]) -> str:
    """Of each device, and of each of its pods."""
    lines = ["gpu_memory_sample_age_seconds 1"]
    for index in range(size.devices):
        device, on_it = f'gpu="{index}",uuid="GPU-{node}-{index}"', [*size.on(node, index)]
        used = DRIVER_MIB + USED_MIB * len(on_it)
        for name, mib in (("total", DEVICE_MIB), ("used", used), ("free", DEVICE_MIB - used)):
            lines.append(f"gpu_device_memory_{name}_bytes{{{device}}} {mib * 2**20}")
        lines += [
            f"gpu_memory_unattributed_bytes{{{device}}} {DRIVER_MIB * 2**20}",
            f"gpu_memory_unknown_processes{{{device}}} 0",
        ]
        for number in on_it:
            pod = f'namespace="{size.tenant(number)}",pod="pod-{number}",pod_uid="{uids[number]}",container="main"'
            lines.append(f"gpu_pod_memory_used_bytes{{{pod},{device}}} {USED_MIB * 2**20}")
    return "\n".join(lines) + "\n"


def create(made: Cluster, size: Size, uids: dict[int, str]) -> None:
    """All objects; pods run. `uids` are as of Pages."""
    api, nodes = made.api, range(size.nodes)
    for name in (SYSTEM, EXPORTERS, *(f"team-{tenant}" for tenant in range(size.tenants))):
        api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    api.create(f"/api/v1/namespaces/{SYSTEM}/configmaps", ledger(size))
    each(nodes, lambda number: api.create(NODES, node(number, size)))
    each(nodes, lambda number: api.create(SLICES, devices(number, size)))
    for tenant in range(size.tenants):
        api.create(DEPLOYMENTS.format(f"team-{tenant}"), deployment(tenant))
    each(nodes, lambda number: start(made, exporter(number), f"10.0.{number // 250}.{number % 250 + 1}"))
    each(range(size.pods), lambda number: uids.update({number: start(made, seated(number, size), "10.1.0.1")}))
    waits = pod({"name": WAITS, "namespace": "team-0"}, "", {NAMES.gpumem: str(DEVICE_MIB + 1)})
    del waits["spec"]["nodeName"]  # type: ignore[attr-defined]
    api.create(pods("team-0"), waits)


def start(made: Cluster, manifest: Manifest, address: str) -> str:
    """The pod's uid."""
    path = pods(manifest["metadata"]["namespace"])
    uid = str(made.api.create(path, manifest)["metadata"]["uid"])
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    made.api.patch(f"{path}/{manifest['metadata']['name']}/status", {"status": status})
    return uid


def ledger(size: Size) -> Manifest:
    pool = Pool(
        name="cards",
        node_selector={"pool": "cards"},
        nodes=size.nodes,
        device_count=size.devices,
        memory_mib=DEVICE_MIB,
        reserve_mib=RESERVE_MIB,
        floor_mib=RESERVE_MIB,
    )
    gates = (f"team-{number}" for number in range(size.tenants))
    declared = Ledger(
        domain=NAMES.domain,
        pools=(pool,),
        seats=tuple(
            Seat(
                name=f"seat-{number}",
                tenant=size.tenant(number),
                pool="cards",
                gpumem_mib=SEAT_MIB,
                replicas=size.pods // size.seats,
            )
            for number in range(size.seats)
        ),
        on_demand=tuple(OnDemand(name=f"{name}-gate", tenant=name, pool="cards", need_mib=2048) for name in gates),
    )
    return {"metadata": {"name": LEDGER}, "data": {LEDGER_KEY: json.dumps(declared.to_data())}}


def node(number: int, size: Size) -> Manifest:
    labels = {"pool": "cards", **{f"label-{i}": "x" * 30 for i in range(30)}}
    capacity = {"cpu": "64", "pods": "110", NAMES.gpumem: str(size.devices * (DEVICE_MIB - RESERVE_MIB))}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": f"node-{number}", "labels": labels}, "status": status}


def devices(number: int, size: Size) -> Manifest:
    shown = [
        {
            "name": f"gpu-{index}",
            "attributes": {"uuid": {"string": f"GPU-{number}-{index}"}, "index": {"int": index}},
            "capacity": {"memory": {"value": f"{DEVICE_MIB}Mi"}},
        }
        for index in range(size.devices)
    ]
    published = {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": NAMES.device_driver, "nodeName": f"node-{number}", "pool": published, "devices": shown}
    return {"metadata": {"name": f"slice-{number}"}, "spec": spec}


def deployment(tenant: int) -> Manifest:
    labels = {"app": "gate"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "busybox:1.37.0"}]}}
    spec = {"replicas": tenant % 2, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": f"team-{tenant}-gate"}, "spec": spec}


def exporter(node: int) -> Manifest:
    metadata = {"name": f"{EXPORTER}-{node}", "namespace": EXPORTERS, "labels": {LABEL_NAME: EXPORTER}}
    made = pod(metadata, f"node-{node}", {"cpu": "20m"})
    made["spec"]["containers"][0]["ports"] = [{"containerPort": PORT}]
    return made


def seated(number: int, size: Size) -> Manifest:
    """A pod as the extender has bound it."""
    node, index = size.place(number)
    placed = {
        NAMES.device_index: str(index),
        NAMES.device_uuid: f"GPU-{node}-{index}",
        NAMES.device_mib: str(SEAT_MIB),
    }
    metadata = {"name": f"pod-{number}", "namespace": size.tenant(number), "annotations": placed}
    return pod(metadata, f"node-{node}", {NAMES.gpumem: str(SEAT_MIB)})


def pids(made: Cluster) -> list[int]:
    """Of who serves the requests."""
    return [made.pid_of("kube-apiserver"), made.pid_of("etcd")]


def cpu_seconds(pid: int) -> float:
    """That a process has taken. Source: proc_pid_stat(5)."""
    fields = re.sub(r".*\)", "", Path(f"/proc/{pid}/stat").read_text()).split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
