"""Tests that a tenant's own objects end no pass of an agent, and change no decision about another object.

docs/choosing/fields.md lists the fields that the API server does not validate.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agents.exporter.attribution import DeviceUse, NodeUse
from agents.exporter.main import DeviceReader
from agents.exporter.registry import Registry, RegistryInformer
from agents.extender.bind import Binder, ClientPool
from agents.extender.cache.cache import Cache
from agents.extender.cache.informers import Informers
from agents.extender.filter import PlacementVerbs
from agents.extender.handlers import Readiness, VerbHandler
from agents.extender.waiting import WaitingPods
from agents.gate.main import GateRun
from agents.guard.follow import AdjustmentRule, PodWatcher
from agents.guard.main import ProcessGuard
from agents.guard.oom_score_adj import AdjOutcome
from agents.kube.client import Object
from agents.kube.slices import SLICES
from agents.node.cgroup import Container
from agents.node.pods import NodePod, NodePods
from agents.reconcile.main import Reconciler
from agents.reconcile.main import Settings as ReconcileSettings
from agents.runtime.clock import Clock
from agents.runtime.http_message import HttpRequest
from agents.telemetry.client import Scraper
from agents.watchdog.main import Settings as WatchdogSettings
from agents.watchdog.main import WatchdogRun
from tenancy import names
from tenancy.choices import Source
from tenancy.ledger import Ledger, Seat
from tenancy.names import (
    GPU_POD,
    GPU_POD_VALUE,
    KUEUE_API,
    KUEUE_POD_SET_LABEL,
    KUEUE_WORKLOAD_ANNOTATION,
    LABEL_GPU_COUNT,
    SCHEDULER_NAME,
)
from tenancy.units import MIB
from tests.support.exporters import add_exporter, card, device_reader
from tests.support.fake_cluster import DOMAIN, LABELS, NAMES, SYSTEM, T4, FakeCluster, Served, merge
from tests.support.gating import ALWAYS, SETTINGS, TTS, add_deployment, path_of

NODE, OTHER_NODE = "k8s-node1", "other"
CREATED = "2026-06-02T06:00:00Z"
START = datetime(2026, 6, 2, 12, 0, tzinfo=UTC)
POOL = replace(T4, device_count=2)
SHOWN = {**LABELS, LABEL_GPU_COUNT: "2"}
LEDGER = Ledger(
    domain=DOMAIN,
    pools=(POOL,),
    seats=(Seat(name="s", tenant="immich", pool=POOL.name, gpumem_mib=3000),),
    queue_tenants=("n",),
)
LONG = "x" * 200 * 1024
ENDLESS = 2**63 - 1


def limits(resource: str, amount: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": {resource: amount}}}]}}


def annotations(**texts: str) -> dict[str, Any]:
    keys = {"index": NAMES.device_index, "uuid": NAMES.device_uuid, "workload": KUEUE_WORKLOAD_ANNOTATION}
    return {"metadata": {"annotations": {keys[key]: text for key, text in texts.items()}}}


def owner(**texts: Any) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [{"controller": True, **texts}]}}


# What the API server lets a tenant write into a pod. The keys are the names of the pods.
ODD: dict[str, dict[str, Any]] = {
    "endless-gpumem": limits(NAMES.gpumem, "9" * 400),
    "exabytes": limits(NAMES.gpumem, "100E"),
    "no-parts": limits(NAMES.gpumem, "1m"),
    "endless-count": limits(NAMES.gpu_count, "9" * 400),
    "endless-cpu": limits("cpu", "9" * 400),
    "endless-memory": limits("memory", "9" * 400),
    "long-annotations": annotations(index=LONG, uuid=LONG, workload=LONG),
    "foreign-device": annotations(index="99999999999", uuid="GPU-0,GPU-0"),
    "no-device": annotations(index="\u0663,x", uuid="\u00e9\n\x1b[2J"),
    "another-path": annotations(workload="../../nodes/k8s-node1?dryRun=All"),
    "owned-by-a-path": owner(apiVersion="a/b/c?x", kind="../x", name="a?dryRun=All", uid="../x"),
    "owned-by-a-job": owner(apiVersion="../v1", kind="Job", name="../x", uid="j"),
    "owned-at-length": owner(apiVersion=LONG, kind=LONG, name=LONG, uid=LONG),
    "stays-for-ever": {"spec": {"terminationGracePeriodSeconds": ENDLESS}},
    "never-stayed": {"spec": {"terminationGracePeriodSeconds": -ENDLESS}},
    "goes-for-ever": {
        "metadata": {"deletionTimestamp": "1779-11-01T07:00:00Z", "deletionGracePeriodSeconds": ENDLESS},
        "spec": {"terminationGracePeriodSeconds": ENDLESS},
    },
}


def pod(name: str, change: dict[str, Any] | None = None) -> dict[str, Any]:
    resources = {"limits": {NAMES.gpumem: "3k", "memory": "1Gi", NAMES.gpu_count: "1"}}
    found = {
        "kind": "Pod",
        "metadata": {
            "namespace": "n",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": CREATED,
            "labels": {KUEUE_POD_SET_LABEL: "main", GPU_POD: GPU_POD_VALUE},
            "annotations": {NAMES.device_uuid: "GPU-0", NAMES.device_index: "0"},
            "ownerReferences": [{"controller": True, "kind": "ReplicaSet", "name": "rs", "uid": "u"}],
        },
        "spec": {
            "nodeName": NODE,
            "nodeSelector": {"gpu": "t4"},
            "schedulerName": SCHEDULER_NAME,
            "priorityClassName": "llm",
            "containers": [{"name": "c", "resources": resources}],
        },
        "status": {
            "phase": "Running",
            "startTime": CREATED,
            "containerStatuses": [
                {"name": "c", "containerID": "containerd://aaa", "state": {"running": {"startedAt": CREATED}}}
            ],
        },
    }
    merge(found, deepcopy(change or {}))
    return found


def odd_pods(host: str, mib: int | None = None) -> list[dict[str, Any]]:
    """Returns the odd pods on the host. They request `mib` of GPU memory, except those with an odd request."""
    found = []
    for name, change in ODD.items():
        usual = {} if mib is None else {NAMES.gpumem: str(mib)}
        base = {"spec": {"nodeName": host, "containers": [{"name": "c", "resources": {"limits": usual}}]}}
        found.append(pod(name, base))
        merge(found[-1], deepcopy(change))
    return found


class Bench(Served):
    """A cluster with a ledger, and with the pods of a tenant if a pass adds them."""

    def __init__(self, mount: Path) -> None:
        super().__init__(cluster=FakeCluster(now=START), mount=mount)
        self.cluster.add_ledger(text=json.dumps(LEDGER.to_data()))
        self.cluster.add_node(NODE, SHOWN)
        for agent in (names.WATCHDOG, names.GATE, names.RECONCILE):
            path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.journal(agent)}"
            self.cluster.objects[path] = {"metadata": {"name": "journal", "resourceVersion": "1"}}

    @property
    def clock(self) -> Clock:
        return replace(self.time.clock(), now=lambda: START + timedelta(seconds=self.time.seconds))

    @property
    def problems(self) -> list[str]:
        return [line["message"] for line in self.lines()]

    def add(self, pods: list[dict[str, Any]]) -> None:
        self.cluster.pods += pods

    def wait(self, seconds: float) -> None:
        self.time.seconds += seconds
        self.cluster.now = self.clock.now()

    def writes(self, *parts: str) -> list[tuple[str, Any]]:
        asked = zip(self.cluster.requests, self.cluster.bodies, strict=True)
        return [(path, body) for (method, path), body in asked if method != "GET" and any(p in path for p in parts)]


def tell(pods: list[dict[str, Any]], apply: Callable[[Object], object]) -> None:
    for item in pods:
        for kind in ("MODIFIED", "DELETED", "ADDED"):
            apply({"type": kind, "object": item})


def resource_slice(host: str) -> dict[str, Any]:
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {"uuid": {"string": f"GPU-{index}"}, "index": {"int": index}},
            "capacity": {"memory": {"value": "15Gi"}},
        }
        for index in range(POOL.device_count)
    ]
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{host}", "resourceVersion": "1"},
        "spec": {
            "driver": NAMES.device_driver,
            "nodeName": host,
            "pool": {"name": host, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def trusted(name: str, namespace: str, mib: int | None, host: str = NODE) -> dict[str, Any]:
    found = pod(name)
    found["metadata"] |= {"namespace": namespace, "labels": {GPU_POD: GPU_POD_VALUE}, "annotations": {}}
    found["metadata"]["ownerReferences"] = [
        {"controller": True, "kind": "ReplicaSet", "name": f"{name}-rs", "uid": f"rs-{name}"}
    ]
    limits = {} if mib is None else {NAMES.gpumem: str(mib), NAMES.gpu_count: "1"}
    found["spec"] |= {"nodeName": host, "containers": [{"name": "c", "resources": {"limits": limits}}]}
    return found


Pass = Callable[[Bench, bool], Any]


def watchdog(bench: Bench, odd: bool) -> Any:
    queued = trusted("train", "n", 3000)
    queued["metadata"]["labels"] = {KUEUE_POD_SET_LABEL: "main"}
    queued["metadata"]["annotations"] = {KUEUE_WORKLOAD_ANNOTATION: "job-a"}
    bench.add(odd_pods(NODE, 3000) if odd else [])
    bench.add([trusted("immich-ml", "immich", 3000), trusted("frigate", "frigate", 5000), queued])
    job_set = {"controller": True, "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "s"}
    queued["metadata"]["ownerReferences"] = [{**job_set, "apiVersion": "batch/v1", "kind": "Job", "uid": "j"}]
    bench.cluster.objects["/apis/batch/v1/namespaces/n/jobs/s"] = {
        "metadata": {"uid": "j", "ownerReferences": [job_set]}
    }
    bench.cluster.objects[f"/apis/{KUEUE_API}/namespaces/n/workloads/job-a"] = {
        "metadata": {"ownerReferences": [job_set], "resourceVersion": "1"},
        "spec": {},
    }
    add_exporter(bench, node=NODE)
    run = WatchdogRun(
        settings=WatchdogSettings(
            ledger_namespace=SYSTEM, exporter_namespace="nodes", exporter_port=1, dry_run=False, interval_seconds=5,
            run_seconds=0, pod_name="w", tenants=("immich", "n"), minimum_age_seconds=120, cool_down_seconds=600,
            grace_seconds=20, evictions_per_hour=6, least_free_mib=0,
        ),
        api=bench.api(), clock=bench.clock, log=bench.log(),
        scraper=scraper({"immich/immich-ml": 10_700, "frigate/frigate": 4_000}, {"n/train": 14_360}),
    )  # fmt: skip
    for _ in range(2):
        run.take()
        bench.wait(5)
    return bench.writes("/eviction", "/workloads/")


def scraper(*used_mib: dict[str, int]) -> Scraper:
    names_of = [tuple(pod.split("/")) for used in used_mib for pod in used]
    pods = [
        NodePod(namespace=namespace, name=name, uid=f"uid-{name}", group_uid=f"uid-{name}", declared_mib=3000)
        for namespace, name in names_of
    ]
    uses = [
        DeviceUse(
            device=card(15360 - sum(used.values()), gpu),
            used_bytes={Container(f"uid-{pod.partition('/')[2]}", "a"): mib * MIB for pod, mib in used.items()},
        )
        for gpu, used in enumerate(used_mib)
    ]
    reader = device_reader(*uses, registry=Registry(NodePods(tuple(pods)), LEDGER))
    return Scraper(page=lambda url: reader.metrics()[1].encode())


def gate(bench: Bench, odd: bool) -> Any:
    other = replace(ALWAYS, name="ytdlp", deployment="ytdlp", namespace="n")
    for each in (TTS, other):
        add_deployment(bench.cluster, each)
    if odd:
        bench.add(odd_pods(NODE))
        bench.add([{**each, "status": {"phase": "Pending"}} for each in odd_pods("", 3000)])
        scaler = {"metadata": {"namespace": "n", "name": "h"}, "spec": {"scaleTargetRef": {"name": "../x"}}}
        path = f"/apis/keda.sh/v1alpha1/namespaces/{TTS.namespace}/scaledobjects"
        bench.cluster.objects[path] = {"metadata": {}, "items": [scaler]}
        merge(bench.cluster.objects[path_of(other)], {"spec": {"template": {"spec": ODD["endless-gpumem"]["spec"]}}})
    bench.add([trusted("immich-ml", "immich", 3000)])
    add_exporter(bench, node=NODE)
    run = GateRun(
        settings=replace(SETTINGS, gates=(ALWAYS, other), exporter_port=1),
        api=bench.api(), clock=bench.clock, log=bench.log(), scraper=scraper({"immich/immich-ml": 2_000}, {}),
    )  # fmt: skip
    run.cache.watch = mock.Mock(**{"return_value.take.return_value": []})
    for _ in range(3):
        run.take()
        bench.wait(10)
    return bench.writes(path_of())


def reconcile(bench: Bench, odd: bool) -> Any:
    ledger = replace(LEDGER, pools=(replace(POOL, source=Source.DECLARED),))
    bench.cluster.add_ledger(text=json.dumps(ledger.to_data()))
    bench.cluster.objects[f"{SLICES}/{NODE}"] = resource_slice(NODE)
    if odd:
        bench.cluster.add_node(OTHER_NODE, SHOWN)
        bench.add(odd_pods(OTHER_NODE, 3000))
    bench.add([trusted("immich-ml", "immich", 3000)])
    run = Reconciler(
        settings=ReconcileSettings(ledger_namespace=SYSTEM, pod_name="r", interval_seconds=10, run_seconds=0),
        api=bench.api(), clock=bench.clock, log=bench.log(),
    )  # fmt: skip
    run.attempt()
    return bench.writes(f"/{NODE}/status")


def guard(bench: Bench, odd: bool) -> Any:
    tenants = odd_pods(NODE) if odd else []
    bench.add([*tenants, trusted("immich-ml", "n", None)])
    rule = AdjustmentRule(members=frozenset({"n/llm"}), allocatable_mib=64_000, memory_mib=64_000)
    follower = PodWatcher(api=bench.api(), node=NODE, rule=rule, clock=bench.clock, log=bench.log())
    follower.informer.lists()
    tell(tenants, follower.informer.apply)
    held: dict[int, int] = {}

    def hold(pid: int, container: Container, adj: int) -> AdjOutcome:
        held[pid] = adj
        return AdjOutcome.LOWERED

    groups = ["uid-immich-ml", *(f"uid-{name}" for name in ODD)]
    ProcessGuard(
        scan=lambda problems: {pid: Container(uid, "c") for pid, uid in enumerate(groups)},
        hold=hold, follower=follower, tell=lambda event: None, clock=bench.clock, log=bench.log(),
    ).pass_once()  # fmt: skip
    return held[0]


def exporter(bench: Bench, odd: bool) -> Any:
    tenants = odd_pods(NODE, 3000) if odd else []
    bench.add([*tenants, trusted("immich-ml", "immich", 3000)])
    informer = RegistryInformer(
        api=bench.api(), node=NODE, ledger_namespace=SYSTEM, clock=bench.clock, log=bench.log(), slices=True
    )
    informer.informer.lists()
    tell(tenants, informer.informer.apply)
    used = {Container("uid-immich-ml", "aaa"): 4000 * MIB}
    used |= {Container(f"uid-{name}", "aaa"): MIB for name in ODD}
    reader = DeviceReader(
        read=lambda: NodeUse((DeviceUse(device=card(5000), used_bytes=used),)),
        registry=informer, clock=bench.clock, interval_seconds=60,
    )  # fmt: skip
    reader.sample()
    status, body = reader.metrics()
    lines = [line for line in body.splitlines() if 'pod="immich-ml"' in line or line.startswith("gpu_device")]
    return status, lines


def extender(bench: Bench, odd: bool) -> Any:
    own = [trusted("low", "immich", 9000), trusted("lower", "immich", 9000)]
    for index, each in enumerate(own):
        each["metadata"]["annotations"] = {NAMES.device_uuid: f"GPU-{index}", NAMES.device_index: str(index)}
        each["spec"]["priority"] = -index
    bench.cluster.objects[f"{SLICES}/{NODE}"] = resource_slice(NODE)
    tenants = odd_pods(OTHER_NODE, 3000) if odd else []
    if odd:
        bench.cluster.add_node(OTHER_NODE, SHOWN)
    bench.add([*tenants, *own])
    verbs, informers = handlers(bench)
    informers.list_all()
    tell(tenants, informers.informer.apply)
    victims = {OTHER_NODE: {"Pods": [{"UID": "uid-stays-for-ever"}]}}
    for item in odd_pods("", 3000) if odd else ():
        assert ask(verbs, "filter", {"Pod": item, "NodeNames": [OTHER_NODE]})[0] in (200, 503)
        assert ask(verbs, "preempt", {"Pod": item, "NodeNameToMetaVictims": victims})[0] in (200, 503)
    large, small = trusted("new", "immich", 9000, host=""), trusted("small", "immich", 2000, host="")
    for each in (large, small):
        each["spec"]["priority"] = 9
    answers = [
        ask(verbs, "filter", {"Pod": large, "NodeNames": [NODE]}),
        ask(verbs, "preempt", {"Pod": large, "NodeNameToMetaVictims": {NODE: {"Pods": [{"UID": "uid-low"}]}}}),
        ask(verbs, "filter", {"Pod": small, "NodeNames": [NODE]}),
        ask(verbs, "bind", {"PodName": "small", "PodNamespace": "immich", "PodUID": "uid-small", "Node": NODE}),
    ]
    bound = [body["metadata"]["annotations"][NAMES.device_uuid] for _, body in bench.writes("/binding")]
    return answers, bound


def handlers(bench: Bench) -> tuple[VerbHandler, Informers]:
    api, clock, log, cache = bench.api(), bench.clock, bench.log(), Cache()
    informers = Informers(api=api, cache=cache, ledger_namespace=SYSTEM, clock=clock, log=log)
    informers.ledger, informers.problem = LEDGER, None
    waiting = WaitingPods(
        cache=cache, ledger=lambda: LEDGER, nudge=lambda: None, serves=lambda: True, clock=clock, log=log
    )
    placing = PlacementVerbs(
        informers=informers, cache=cache, waiting=waiting, hold_seconds=60, led_since=lambda: 0.0,
        tell=lambda event: None, clock=clock,
    )  # fmt: skip
    binder = Binder(
        connections=ClientPool(lambda: api, clock), cache=cache, waiting=waiting, clock=clock,
    )  # fmt: skip
    ready = Readiness(informers=informers, led_since=lambda: 0.0, measured=lambda: True)
    return VerbHandler(ready, placing, binder, log), informers


def ask(verbs: VerbHandler, verb: str, arguments: Any) -> tuple[int, bytes]:
    answer = verbs.answer(HttpRequest("POST", f"/{verb}", json.dumps(arguments).encode()))
    return answer.status, answer.body


PASSES: dict[str, Pass] = {
    "watchdog": watchdog,
    "gate": gate,
    "reconcile": reconcile,
    "guard": guard,
    "exporter": exporter,
    "extender": extender,
}


@pytest.mark.parametrize("agent", PASSES)
def test_what_a_tenant_writes_ends_no_pass_and_changes_no_other_decision(agent: str, served: Served) -> None:
    expected = PASSES[agent](Bench(served.mount), False)
    assert expected
    bench = Bench(served.mount)
    assert PASSES[agent](bench, True) == expected
    problems = bench.problems
    # A memory limit of any size is readable, so the guard has no problem with a pod.
    assert any(" n/endless-" in each for each in problems) is (agent != "guard"), problems
