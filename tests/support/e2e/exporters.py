"""Runs fake exporters on the real node, each on its own port. The test chooses their readings."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from agents.exporter.attribution import DeviceUse
from agents.exporter.registry import Registry
from agents.kube.nodes import Node
from agents.node.cgroup import Container
from agents.node.pods import NodePod, NodePods
from agents.telemetry.device import Device
from tenancy import names
from tenancy.ledger import Ledger
from tenancy.units import MIB
from tests.support.e2e.rollout import GPUMEM, SYSTEM, Object, Rollout, eventually, pods
from tests.support.exporters import device_reader
from toolchain.cluster.image import agent_image
from toolchain.cluster.paths import program

NODES = names.node_agent_namespace(SYSTEM)
NAME = "exporters"
MEMORY_MIB = 15360

_SERVER = """
import json, os, re, sys, threading, time
sys.path.insert(0, os.environ["CODE"])
from agents.runtime.http_server import MetricsServer


class Scripted:
    def __init__(self, given):
        self.given = given

    def metrics(self):
        age = f"sample_age_seconds {1 + time.time() % 0.9:.3f}"
        text = self.given["text"]
        return 200, text if self.given["frozen"] else re.sub("sample_age_seconds [0-9.]+", age, text)

    def health(self):
        return 200, "ok"


for port, given in json.loads(os.environ["SCRIPT"]).items():
    threading.Thread(target=MetricsServer(int(port), Scripted(given)).serve_forever).start()
"""
_FETCH = """
import json, sys, time, urllib.request
def read(port):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
def twice(port):
    first = read(port)
    time.sleep(0.1)
    return [first, read(port)]
print(json.dumps({port: twice(port) for port in sys.argv[1:]}))
"""


@dataclass(frozen=True, kw_only=True)
class Answer:
    text: str
    frozen: bool = False


def pod_of(found: Object) -> NodePod:
    metadata, uid = found["metadata"], found["metadata"]["uid"]
    declared = int(found["spec"]["containers"][0]["resources"]["limits"][GPUMEM].replace("k", "000"))
    return NodePod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=uid,
        group_uid=uid,
        containers={uid: "main"},
        declared_mib=declared,
    )


def shown(ledger: Ledger, uses: Iterable[tuple[NodePod, int]], free_mib: int, *, used_mib: int | None = None) -> str:
    used = tuple(uses)
    card = Device(
        gpu=0,
        uuid="GPU-0",
        total_bytes=MEMORY_MIB * MIB,
        used_bytes=(MEMORY_MIB - free_mib if used_mib is None else used_mib) * MIB,
        free_bytes=free_mib * MIB,
    )
    by_container = {Container(pod.uid, pod.uid): mib * MIB for pod, mib in used}
    here = Node(name="n", uid="node", labels=ledger.shared_pools[0].node_selector)
    registry = Registry(NodePods(tuple(pod for pod, _ in used)), ledger, (), here)
    return device_reader(DeviceUse(device=card, used_bytes=by_container), age_seconds=1, registry=registry).metrics()[1]


def serve(prod: Rollout, script: Mapping[int, Answer], node: str) -> None:
    code = next(
        found["metadata"]["name"]
        for found in prod.items(f"/api/v1/namespaces/{NODES}/configmaps")
        if names.AGENTS_KEY in found.get("binaryData", {})
    )
    answers = {str(port): asdict(answer) for port, answer in script.items()}
    container = {
        "name": NAME,
        "image": agent_image(),
        "command": ["python", "-I", "-c", _SERVER],
        "env": [
            {"name": "CODE", "value": f"{names.AGENTS_DIRECTORY}/{names.AGENTS_KEY}"},
            {"name": "SCRIPT", "value": json.dumps(answers)},
        ],
        "readinessProbe": {"tcpSocket": {"port": max(script)}, "periodSeconds": 1},
        "volumeMounts": [{"name": "code", "mountPath": names.AGENTS_DIRECTORY, "readOnly": True}],
    }
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "code", "configMap": {"name": code}}],
    }
    prod.cluster.api.create(pods(NODES), {"metadata": {"name": NAME}, "spec": spec})
    address = eventually(lambda: _address(prod), "the exporters serve")
    exporter = eventually(
        lambda: [p for p in prod.items(pods(NODES)) if p["spec"].get("nodeName") == node and p["status"].get("podIP")],
        "the node's exporter has an address",
    )[0]["metadata"]["name"]
    status = {"podIP": address, "podIPs": [{"ip": address}]}
    prod.cluster.api.patch(f"{pods(NODES, exporter)}/status", {"status": status})


def _address(prod: Rollout) -> str | None:
    status = prod.get(pods(NODES, NAME))["status"]
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))
    return status.get("podIP") if ready else None


def served(prod: Rollout, ports: Iterable[int]) -> Mapping[int, list[str]]:
    kubectl = [program("kubectl"), f"--kubeconfig={prod.cluster.kubeconfig}", f"--namespace={NODES}"]
    command = [*kubectl, "exec", NAME, "--", "python", "-c", _FETCH, *map(str, ports)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    return {int(port): texts for port, texts in json.loads(told.stdout).items()}
