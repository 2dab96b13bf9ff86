"""Builds a small platform for tests of components."""

from typing import Any

import pulumi

from components.base import zipapp
from components.base.network import PrometheusSpec
from components.base.system import ClusterSpec
from tenancy.choices import Sharing
from tenancy.ledger import Ledger, Pool, Seat
from tests.support.engine import Graph, build

DOMAIN = "example.com"
SYSTEM, NODES = "gpu-tenancy-system", "gpu-tenancy-system-nodes"
CLUSTER = ClusterSpec(resource_domain=DOMAIN, agent_image="docker.io/library/python:3.13.9-slim-bookworm")
PROMETHEUS = PrometheusSpec(namespace="monitoring")
SCRAPED = CLUSTER.model_copy(update={"prometheus": PROMETHEUS})
CODE = zipapp.build()
NODE_CODE = zipapp.build_for_nodes()
T4 = Pool(
    name="t4",
    node_selector={"nvidia.com/gpu.product": "Tesla-T4", "zone": "a"},
    nodes=1,
    device_count=1,
    memory_mib=15360,
    reserve_mib=1360,
    floor_mib=1536,
)
BATCH = Pool(name="batch", node_selector={"zone": "b"}, nodes=1, device_count=1, sharing=Sharing.WHOLE, memory_mib=0)
LEDGER = Ledger(domain=DOMAIN, pools=(T4, BATCH), seats=(Seat(name="chat", tenant="chat", pool="t4", gpumem_mib=5000),))


def declared(component: type[pulumi.ComponentResource], name: str, args: object) -> Graph:
    return build(lambda: component(name, args))  # type: ignore[call-arg, arg-type]


def environment(workload: dict[str, Any]) -> dict[str, str]:
    return {e["name"]: e["value"] for e in container(workload)["env"] if "value" in e}


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod(workload)["containers"]
    return only


def pod(workload: dict[str, Any]) -> dict[str, Any]:
    spec = workload["spec"]
    return (spec["jobTemplate"]["spec"] if workload["kind"] == "CronJob" else spec)["template"]["spec"]


def rights(graph: Graph) -> set[tuple[str, str, str, tuple[str, ...]]]:
    return {
        (r.inputs["metadata"].get("namespace", "*"), f"{group}/{resource}", verb, tuple(rule.get("resourceNames", ())))
        for kind in ("Role", "ClusterRole")
        for r in graph.all(kind)
        for rule in r.inputs["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
