"""Tests the gate as a process on a real API server: which Deployments it scales, and which it leaves to others."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from agents.runtime.http_server import MetricsServer
from components.agents.gate import Gate, GateArgs, GateSpec, OnDemandSpec, gate_agent
from components.agents.reconcile import ledger_config_map
from components.base import zipapp
from components.base.system import ClusterSpec, namespace
from tenancy import names
from tenancy.ledger import Ledger, Pool
from tests.support.curves import Script
from tests.support.e2e.agent_process import mounted, start, stop
from tests.support.e2e.server import ApiServer
from tests.support.given import declared, environment
from tests.support.waiting import becomes, eventually

SYSTEM, TENANT, NODE = "gated-system", "gated", "gated-node"
NODES = names.node_agent_namespace(SYSTEM)
CLUSTER = ClusterSpec(resource_domain="example.com", system_namespace=SYSTEM, agent_image="python:3.13.9")
POOL = Pool(
    name="t4",
    node_selector={"gpu": "gated"},
    nodes=1,
    device_count=1,
    memory_mib=15360,
    reserve_mib=1360,
    floor_mib=1536,
)
NEEDS = {"books": 2048, "radio": 1, "stream": 1, "tts": 2048, "video": 1}
APPS = f"/apis/apps/v1/namespaces/{TENANT}/deployments"
PODS = f"/api/v1/namespaces/{NODES}/pods"
SCALED_OBJECTS = f"/apis/keda.sh/v1alpha1/namespaces/{TENANT}/scaledobjects"
# KEDA's kind ScaledObject, without a schema. The gate only reads it.
KEDA = {
    "metadata": {"name": "scaledobjects.keda.sh"},
    "spec": {
        "group": "keda.sh",
        "scope": "Namespaced",
        "names": {"kind": "ScaledObject", "plural": "scaledobjects", "singular": "scaledobject"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@dataclass(frozen=True)
class Gated:
    server: ApiServer

    def replicas(self) -> dict[str, int]:
        found = self.server.request("GET", APPS).body["items"]
        return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found}

    def told(self, name: str, reason: str) -> list[str]:
        path = f"/apis/events.k8s.io/v1/namespaces/{TENANT}/events?fieldSelector=reason%3D{reason}"
        found = self.server.request("GET", path).body["items"]
        return [event["note"] for event in found if event["regarding"]["name"] == name]


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "busybox:1.37.0"}]}}
    return {"metadata": {"name": name}, "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod}}


def collection(manifest: dict[str, Any]) -> str:
    group = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
    home = manifest["metadata"].get("namespace")
    return f"{group}{f'/namespaces/{home}' if home else ''}/{manifest['kind'].lower()}s"


def add_exporter(server: ApiServer) -> None:
    """The exporter of the node answers on this machine."""
    server.create("/api/v1/nodes", {"metadata": {"name": NODE, "labels": dict(POOL.node_selector)}})
    metadata = {"name": "exporter", "labels": {names.LABEL_NAME: names.EXPORTER}}
    spec = {"nodeName": NODE, "containers": [{"name": "main", "image": "busybox:1.37.0"}]}
    server.create(PODS, {"metadata": metadata, "spec": spec})
    status = {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    server.api.patch(f"{PODS}/exporter/status", {"status": status})


def add_autoscalers(server: ApiServer) -> None:
    server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", KEDA)
    of_video = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "video"}, "maxReplicas": 2}
    autoscalers = f"/apis/autoscaling/v2/namespaces/{TENANT}/horizontalpodautoscalers"
    server.create(autoscalers, {"metadata": {"name": "by-cpu"}, "spec": of_video})
    of_stream = {"metadata": {"name": "by-queue"}, "spec": {"scaleTargetRef": {"name": "stream"}, "triggers": []}}
    scaled = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", **of_stream}
    eventually(lambda: server.request("POST", SCALED_OBJECTS, scaled).refusal is None, "KEDA's kind is served")


@pytest.fixture
def gated(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    code = zipapp.build()
    on_demand = {name: OnDemandSpec(tenant=TENANT, pool=POOL.name, need_mib=need) for name, need in NEEDS.items()}
    args = GateArgs(spec=GateSpec(armed=True), cluster=CLUSTER, code=code, on_demand=on_demand)
    for name in (SYSTEM, NODES, TENANT):
        server.create("/api/v1/namespaces", namespace(name, "privileged"))
    ledger = Ledger(domain=CLUSTER.resource_domain, pools=(POOL,))
    server.create(f"/api/v1/namespaces/{SYSTEM}/configmaps", ledger_config_map(ledger, SYSTEM, advertised=False))
    graph = declared(Gate, "gate", args)
    for each in graph.objects():
        if each["kind"] != "CronJob":
            server.create(collection(each), each)
    for name in NEEDS:
        server.create(APPS, deployment(name))
    add_exporter(server)
    add_autoscalers(server)
    mount = mounted(server, gate_agent(args), code, tmp_path_factory.mktemp("gate"))
    with MetricsServer(0, Script(list, driver_mib=POOL.memory_mib - 4096)) as exporter:
        thread = threading.Thread(target=exporter.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        times = {"INTERVAL_SECONDS": "2", "RUN_SECONDS": "3600", "EXPORTER_PORT": str(exporter.server_address[1])}
        given = environment(dict(graph.one("CronJob").inputs)) | times
        running = start(mount, "gate", urlsplit(server.api.server).port or 0, given)
        yield Gated(server)
        stop(running)
        exporter.shutdown()
        thread.join()


def test_the_gate_scales_what_nobody_else_scales(gated: Gated) -> None:
    api = gated.server.api
    first = {"books": 1, "radio": 1, "stream": 0, "tts": 0, "video": 0}
    becomes(gated.replicas, first, "there is room for the first, and for a small one")
    eventually(lambda: gated.told("tts", names.EVENT_GATE_WAITS), "the second waits while the first loads")
    eventually(lambda: gated.told("stream", names.EVENT_GATE_LEFT_ALONE), "KEDA's is told of")
    assert [gated.told(name, names.EVENT_GATE_LEFT_ALONE) for name in ("video", "stream")] == [
        ["the gate leaves it alone: HorizontalPodAutoscaler by-cpu scales it"],
        ["the gate leaves it alone: ScaledObject by-queue scales it"],
    ]

    # If a person scales a Deployment to 0, the Deployment stays at 0.
    api.patch(f"{APPS}/radio/scale?fieldManager=kubectl", {"spec": {"replicas": 0}})
    told = eventually(lambda: gated.told("radio", names.EVENT_GATE_LEFT_ALONE), "the person's act is told of")
    assert told == ["the gate leaves it alone: somebody scaled it to 0 after the gate left it at 1"]

    # Without its autoscaler, the Deployment is under the gate's control.
    assert api.request("DELETE", f"{SCALED_OBJECTS}/by-queue").refusal is None
    becomes(gated.replicas, {**first, "radio": 0, "stream": 1}, "the gate scales what KEDA scaled")
    names_of_ours = {each["manager"] for each in (api.get(f"{APPS}/stream") or {})["metadata"]["managedFields"]}
    assert names.GATE in names_of_ours, json.dumps(sorted(names_of_ours))
