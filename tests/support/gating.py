"""Builds settings, state and devices of the demand gate for tests."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from agents.gate.config import GateConfig
from agents.gate.deployments import Deployment
from agents.gate.main import Settings
from agents.gate.ownership import JournalEntry, Ownership
from agents.gate.pods import BoundPod
from agents.gate.probes import HttpJson, ProbeResult, Window
from agents.gate.types import Action, Cause, GateState, Signal
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Device
from agents.telemetry.reading import PodUse
from tenancy import names
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import WaitingSeat
from tenancy.ledger import Pool, Seat
from tenancy.units import MIB
from tests.support.fake_cluster import SYSTEM, T4, FakeCluster

YES, NO = ProbeResult(True, "pending is 2, 1 asks for it"), ProbeResult(False, "pending is 0, 1 asks for it")
NOW = 1_795_219_200
TTS = GateConfig(
    name="tts",
    namespace="voice",
    deployment="tts",
    pool="t4",
    need_mib=2048,
    margin_mib=256,
    samples=3,
    idle_seconds=300,
    cool_down_seconds=300,
    demand=HttpJson(url="http://queue/status", field="pending"),
)
NIGHTLY = replace(TTS, name="nightly", deployment="nightly", demand=Window(between="02:00-06:00", time_zone="Etc/UTC"))
ALWAYS = replace(TTS, demand=Window(between="00:00-23:59", time_zone="Etc/UTC"))
SETTINGS = Settings(
    ledger_namespace=SYSTEM,
    exporter_namespace="nodes",
    exporter_port=0,
    pod_name="pod",
    dry_run=False,
    interval_seconds=10,
    run_seconds=40,
    gates=(ALWAYS,),
    starting_seconds=300,
)
NEEDED_MIB = 2048 + 1536 + 256
OPEN_NEXT = Signal(act=Action.OPEN, cause=Cause.ROOM, why="", samples=2)
PRESSED_BEFORE = Signal(act=Action.CLOSE, cause=Cause.PRESSURE, why="")


def device(free_mib: int, gpu: int = 0, total_mib: int = 15360) -> Device:
    free, total = free_mib * MIB, total_mib * MIB
    return Device(gpu=gpu, uuid=f"GPU-{gpu}", total_bytes=total, used_bytes=total - free, free_bytes=free)


def reading(*free_mib: int, pool: Pool = T4, node: str = "n", problem: str | None = None) -> NodeTelemetry:
    devices = tuple(device(free, gpu) for gpu, free in enumerate(free_mib))
    return NodeTelemetry(pool=pool, node=node, devices=devices, problem=problem)


def deployment(gate: GateConfig = TTS, **fields: Any) -> Deployment:
    name = gate.deployment
    return Deployment(**{"namespace": gate.namespace, "name": name, "uid": f"uid-{name}", **fields})


def entry(gate: GateConfig = TTS, replicas: int = 0, **fields: Any) -> JournalEntry:
    return JournalEntry(**{"uid": f"uid-{gate.deployment}", "generation": 1, "replicas": replicas, **fields})


def state(gate: GateConfig = TTS, replicas: int = 0, **fields: Any) -> GateState:
    times = {name: fields.pop(name) for name in ("changed_at", "idle_since") if name in fields}
    ownership = Ownership(entry=entry(gate, replicas, **times))
    found = deployment(gate, replicas=replicas)
    return GateState(**{"gate": gate, "deployment": found, "ownership": ownership, "answer": YES, **fields})


def seat_pod(name: str, mib: int, *, node: str = "n", since: int | None = NOW - 3600, **fields: Any) -> BoundPod:
    return BoundPod(
        **{"uid": name, "namespace": name, "node": node, "declared_mib": mib, "running_since": since, **fields}
    )


def waiting(name: str, mib: int, pool: str = "t4", **fields: Any) -> WaitingSeat:
    seat = Seat(name=name, tenant=name, pool=pool, gpumem_mib=mib)
    at = datetime.fromtimestamp(NOW, UTC)
    given = {
        "uid": name,
        "namespace": name,
        "name": name,
        "request": MemoryRequest(mib),
        "seats": (seat,),
        "priority": 0,
    }
    return WaitingSeat(**{**given, "created": at, **fields})


def seat(name: str, mib: int, pool: str = "t4") -> Seat:
    return Seat(name=name, tenant=name, pool=pool, gpumem_mib=mib)


def used(found: NodeTelemetry, **mib: int) -> NodeTelemetry:
    uuid = found.devices[0].uuid
    uses = (PodUse(uid=uid, namespace="", pod="", uuid=uuid, used_bytes=each * MIB) for uid, each in mib.items())
    return replace(found, uses=tuple(uses))


JOURNAL_PATH = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.journal(names.GATE)}"


def path_of(gate: GateConfig = TTS) -> str:
    return f"/apis/apps/v1/namespaces/{gate.namespace}/deployments/{gate.deployment}"


def add_deployment(cluster: FakeCluster, gate: GateConfig = TTS, *, owners: Any = (), **spec: Any) -> None:
    template = {"spec": {"containers": [{"name": "main", "resources": spec.pop("resources", {})}]}}
    cluster.objects[path_of(gate)] = {
        "kind": "Deployment",
        "metadata": {
            "namespace": gate.namespace,
            "name": gate.deployment,
            "uid": f"uid-{gate.deployment}",
            "resourceVersion": cluster.next_version(),
            "generation": 1,
            "managedFields": list(owners),
        },
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": gate.deployment}}, "template": template, **spec},
    }


def owner(manager: str, field: str = "f:replicas") -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {field: {}}}}


def scale_by(cluster: FakeCluster, manager: str, replicas: int) -> None:
    found = cluster.objects[path_of(TTS)]
    found["spec"]["replicas"] = replicas
    found["metadata"]["generation"] += 1
    found["metadata"] |= {"managedFields": [owner(manager)], "resourceVersion": cluster.next_version()}


def add_running_pod(
    cluster: FakeCluster, gate: GateConfig = TTS, *, node: str = "k8s-node1", **metadata: Any
) -> dict[str, Any]:
    name = gate.deployment
    given = {"name": name, "namespace": gate.namespace, "uid": f"uid-{name}-pod", "labels": {"app": name}, **metadata}
    cluster.pods.append({"metadata": given, "spec": {"nodeName": node}, "status": {"phase": "Running"}})
    return cluster.pods[-1]


def add_journal(cluster: FakeCluster) -> None:
    cluster.objects[JOURNAL_PATH] = {"metadata": {"resourceVersion": cluster.next_version()}}
