"""Runs the gate in the container of its CronJob, on real Deployments. The test writes the exporter's metrics."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from components.agents.gate import Gate, GateArgs, GateSpec, HttpJsonDemand, OnDemandSpec
from components.base import zipapp
from components.base.system import ClusterSpec, code_config_map, namespace
from tenancy import names
from tenancy.ledger import Ledger, Pool, Seat
from tests.support.curves import Use, answer
from tests.support.e2e.scripted import PORT, Scripted, pending
from tests.support.engine import build
from tests.support.waiting import PATIENCE_SECONDS, eventually
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.control_plane import NODE
from toolchain.cluster.image import agent_image

SYSTEM, TENANT = "gated-system", "gated"
DOMAIN = "example.com"
NODES = names.node_agent_namespace(SYSTEM)
POOL = Pool(
    name="t4",
    node_selector={"kubernetes.io/hostname": NODE},
    nodes=1,
    device_count=1,
    memory_mib=15360,
    reserve_mib=1360,
    floor_mib=1536,
)
NEEDS = {"books": 2048, "radio": 1, "stream": 1, "tts": 2048, "video": 1}
APPS = f"/apis/apps/v1/namespaces/{TENANT}/deployments"
SCALED_OBJECTS = f"/apis/keda.sh/v1alpha1/namespaces/{TENANT}/scaledobjects"
# KEDA's kind ScaledObject, without a schema. The gate only reads it.
KEDA = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
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

Manifest = Mapping[str, Any]


@dataclass
class Gated:
    cluster: HeldCluster
    script: Scripted
    cron_job: Manifest
    runs: list[str] = field(default_factory=list)

    def eventually(self, holds: Any, what: str) -> Any:
        return eventually(lambda: self._runs() and holds(), what)

    def _runs(self) -> bool:
        if not self.runs or self.status(self.runs[-1]).get("completionTime"):
            self.runs.append(f"run-{len(self.runs)}")
            spec = {**self.cron_job["spec"]["jobTemplate"]["spec"], "activeDeadlineSeconds": PATIENCE_SECONDS}
            job = {"metadata": {"name": self.runs[-1]}, "spec": spec}
            self.cluster.api.create(f"/apis/batch/v1/namespaces/{SYSTEM}/jobs", job)
        return True

    def status(self, run: str) -> Manifest:
        job = self.cluster.api.get(f"/apis/batch/v1/namespaces/{SYSTEM}/jobs/{run}")
        assert job is not None
        assert not job["status"].get("failed"), f"{run} failed: {job['status']}"
        status: Manifest = job["status"]
        return status

    def replicas(self, name: str) -> int:
        found = self.cluster.api.get(f"{APPS}/{name}")
        assert found is not None
        return int(found["spec"]["replicas"])

    def scale(self, name: str, replicas: int) -> None:
        self.cluster.api.patch(f"{APPS}/{name}/scale?fieldManager=kubectl", {"spec": {"replicas": replicas}})

    def pod(self, name: str) -> str | None:
        return next((pod["metadata"]["uid"] for pod in self._pods(name)), None)

    @contextmanager
    def lingering(self, name: str) -> Iterator[None]:
        self._finalize(name, ["example.com/unloads"])
        try:
            yield
        finally:
            self._finalize(name, [])

    def _finalize(self, name: str, finalizers: list[str]) -> None:
        for pod in self._pods(name):
            path = f"/api/v1/namespaces/{TENANT}/pods/{pod['metadata']['name']}"
            self.cluster.api.patch(path, {"metadata": {"finalizers": finalizers}})

    def _pods(self, name: str) -> list[Manifest]:
        found = self.cluster.api.get(f"/api/v1/namespaces/{TENANT}/pods?labelSelector=app%3D{name}")
        return list((found or {"items": []})["items"])

    def told(self, name: str, reason: str) -> list[str]:
        path = f"/apis/events.k8s.io/v1/namespaces/{TENANT}/events?fieldSelector=reason%3D{reason}"
        found = self.cluster.api.get(path) or {"items": []}
        return [event["note"] for event in found["items"] if event["regarding"]["name"] == name]

    def measure(self, free_mib: int, **used_mib: int) -> None:
        uses = [Use(TENANT, name, self.pod(name) or "none", mib) for name, mib in used_mib.items()]
        rest_mib = POOL.memory_mib - free_mib - sum(used_mib.values())
        self.script.change(metrics=answer(uses, age_seconds=1, driver_mib=rest_mib))

    def seat_waits(self, mib: int) -> None:
        seat = Seat(name="seat", tenant=TENANT, pool=POOL.name, gpumem_mib=mib)
        ledger = json.dumps(Ledger(domain=DOMAIN, pools=(POOL,), seats=(seat,)).to_data())
        path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"
        self.cluster.api.patch(path, {"data": {names.LEDGER_KEY: ledger}})
        container = {"name": "main", "image": "busybox:1.37.0", "resources": {"limits": {f"{DOMAIN}/gpumem": str(mib)}}}
        pod = {
            "metadata": {"name": "seat"},
            "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container]},
        }
        self.cluster.api.create(f"/api/v1/namespaces/{TENANT}/pods", pod)


def deployment(name: str) -> Manifest:
    labels = {"app": name}
    sleeps = ["python", "-I", "-c", "import time; time.sleep(1e6)"]
    container = {"name": "main", "image": agent_image(), "command": sleeps}
    pod = {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    return {"metadata": {"name": name}, "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod}}


def gate_objects(cluster: ClusterSpec, queues: str) -> list[Manifest]:
    on_demand = {
        name: OnDemandSpec(
            tenant=TENANT,
            pool=POOL.name,
            need_mib=need,
            idle_seconds=3,
            http_json=HttpJsonDemand(url=f"http://{queues}:{PORT}/{name}", field="pending"),
        )
        for name, need in NEEDS.items()
    }
    args = GateArgs(
        spec=GateSpec(armed=True),
        cluster=cluster,
        code=zipapp.build(),
        on_demand=on_demand,
    )
    return list(build(lambda: Gate("gate", args)).objects())


def collection(manifest: Manifest) -> str:
    group = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
    home = manifest["metadata"].get("namespace")
    return f"{group}{f'/namespaces/{home}' if home else ''}/{manifest['kind'].lower()}s"


@pytest.fixture(scope="module")
def gated(real_cluster: HeldCluster) -> Iterator[Gated]:
    api = real_cluster.api
    made = [KEDA, namespace(SYSTEM, "restricted"), namespace(NODES, "privileged"), namespace(TENANT, "baseline")]
    cluster = ClusterSpec(resource_domain=DOMAIN, system_namespace=SYSTEM, agent_image=agent_image())
    for each in made:
        api.create(collection(each), each)
    try:
        ledger = json.dumps(Ledger(domain=DOMAIN, pools=(POOL,)).to_data())
        api.create(
            f"/api/v1/namespaces/{SYSTEM}/configmaps",
            {"metadata": {"name": names.LEDGER}, "data": {names.LEDGER_KEY: ledger}},
        )
        api.create(f"/api/v1/namespaces/{SYSTEM}/configmaps", code_config_map(zipapp.build(), SYSTEM))
        for name in NEEDS:
            api.create(APPS, deployment(name))
        script = Scripted(real_cluster, NODES, "scripted")
        address = script.start({names.LABEL_NAME: names.EXPORTER}, {name: pending(1) for name in NEEDS})
        made += gate_objects(cluster, address)
        for each in made[4:]:
            body = {**each, "spec": {**each["spec"], "suspend": True}} if each["kind"] == "CronJob" else each
            api.create(collection(each), body)
        (cron_job,) = (each for each in made if each["kind"] == "CronJob")
        yield Gated(real_cluster, script, cron_job)
    finally:
        for each in reversed(made):
            api.request("DELETE", f"{collection(each)}/{each['metadata']['name']}?propagationPolicy=Background")
        eventually(
            lambda: not any(api.get(f"{collection(each)}/{each['metadata']['name']}") for each in made), "all is gone"
        )


def test_the_gate_starts_and_stops_workloads_by_free_memory_and_queues(gated: Gated) -> None:
    scaler = {
        "metadata": {"name": "by-cpu"},
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "video"}},
    }
    gated.cluster.api.create(f"/apis/autoscaling/v2/namespaces/{TENANT}/horizontalpodautoscalers", scaler)

    scaled = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "by-queue"}}
    target = {"scaleTargetRef": {"name": "stream"}, "triggers": []}
    gated.eventually(
        lambda: gated.cluster.api.request("POST", SCALED_OBJECTS, {**scaled, "spec": target}).refusal is None,
        "KEDA's kind is served",
    )

    # At first, the exporter fails, so the gate starts no workload.
    gated.eventually(lambda: gated.told("video", names.EVENT_GATE_LEFT_ALONE), "the autoscaler is told of")
    gated.eventually(lambda: gated.told("stream", names.EVENT_GATE_LEFT_ALONE), "KEDA's is told of")
    assert [gated.replicas(name) for name in NEEDS] == [0, 0, 0, 0, 0]
    gated.measure(4096)
    gated.eventually(lambda: gated.replicas("books") and gated.replicas("radio"), "the first, and a small one, are in")
    gated.eventually(lambda: gated.told("tts", names.EVENT_GATE_WAITS), "the second waits while the first loads")
    assert gated.replicas("tts") == 0

    gated.eventually(lambda: gated.pod("books") and gated.pod("radio"), "their pods are there")
    gated.measure(4096, books=2048, radio=1)
    gated.eventually(lambda: gated.replicas("tts"), "there is room for the second")

    # If a person scales a Deployment to 0, the Deployment stays at 0.
    gated.scale("radio", 0)
    gated.eventually(lambda: gated.told("radio", names.EVENT_GATE_LEFT_ALONE), "it is told of")
    assert gated.told("radio", names.EVENT_GATE_LEFT_ALONE) == [
        "the gate leaves it alone: somebody scaled it to 0 after the gate left it at 1"
    ]

    # The device is below its floor, so the gate stops the workload that it started last.
    gated.eventually(lambda: gated.pod("tts"), "its pod is there")
    with gated.lingering("tts"):
        gated.measure(1000, books=2048, tts=2048)
        gated.eventually(lambda: gated.replicas("tts") == 0, "the last has gone")
        assert gated.replicas("books") == 1
        gated.measure(4096, books=2048)

    # The probe of the work queue fails, so the gate does nothing.
    gated.script.change(books=None)
    gated.script.change(books=pending(0))
    gated.eventually(lambda: gated.replicas("books") == 0, "the idle one has gone")
    assert [gated.replicas(name) for name in NEEDS] == [0, 0, 0, 0, 0]
    assert gated.told("video", names.EVENT_GATE_LEFT_ALONE) == [
        "the gate leaves it alone: HorizontalPodAutoscaler by-cpu scales it"
    ]
    assert gated.told("stream", names.EVENT_GATE_LEFT_ALONE) == [
        "the gate leaves it alone: ScaledObject by-queue scales it"
    ]

    # Without its autoscaler, the Deployment is under the gate's control.
    api = gated.cluster.api
    assert api.request("DELETE", f"{SCALED_OBJECTS}/by-queue").refusal is None
    gated.eventually(lambda: gated.replicas("stream"), "it is in")
    assert gated.replicas("video") == 0

    # A resident's pod waits for memory that the gate has given to on-demand workloads.
    gated.eventually(lambda: gated.pod("stream"), "its pod is there")
    gated.measure(2000, stream=1)
    gated.seat_waits(500)
    gated.eventually(lambda: gated.replicas("stream") == 0, "it has gone for the seat")
    (note,) = gated.eventually(lambda: gated.told("stream", names.EVENT_GATE_CLOSED), "it is told why")
    assert note.startswith("a seat needs its memory: ")
    assert f"{TENANT}/seat waits for 500 MiB" in note


def test_its_runs_end_by_themselves_and_succeed(gated: Gated) -> None:
    eventually(lambda: all(gated.status(run).get("succeeded") for run in gated.runs), "every run has succeeded")
