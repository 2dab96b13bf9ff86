"""Tests that hostile values in one object never change an agent's decisions about other objects. The fields are listed
in docs/choosing/fields.md. `make soak` tries 105,000 values.
"""

import io
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from agents.exporter.attribution import DeviceUse, NodeUse
from agents.exporter.main import DeviceReader
from agents.exporter.registry import Registry, RegistryInformer
from agents.extender.bind import Binder, ClientPool
from agents.extender.cache.cache import Cache
from agents.extender.cache.informers import Informers
from agents.extender.disruptions import DisruptionBudgetReader
from agents.extender.filter import PlacementVerbs
from agents.extender.handlers import Readiness, VerbHandler
from agents.extender.hold import SeatHolds
from agents.extender.leader import AlwaysLeader
from agents.extender.pending import PendingPods
from agents.gate.main import GateRun
from agents.guard.follow import AdjustmentRule, PodWatcher
from agents.guard.main import ProcessGuard
from agents.guard.oom_score_adj import AdjOutcome
from agents.kube.disruption_budgets import disruption_budgets_of
from agents.kube.nodes import NODES
from agents.kube.pods import PODS, Pod, pods_of
from agents.kube.slices import SLICES
from agents.node.cgroup import Container
from agents.node.pods import NodePod, NodePods
from agents.reconcile.main import Reconciler
from agents.reconcile.main import Settings as ReconcileSettings
from agents.runtime.clock import Clock
from agents.runtime.http_message import HttpRequest
from agents.runtime.items import ItemProblems, Unjudged, judged
from agents.runtime.log import Log
from agents.telemetry.client import Scraper
from agents.watchdog.main import Settings as WatchdogSettings
from agents.watchdog.main import WatchdogRun
from tenancy import names
from tenancy.choices import Source
from tenancy.ledger import Ledger, Seat
from tenancy.names import KUEUE_API, KUEUE_POD_SET_LABEL, KUEUE_WORKLOAD_ANNOTATION, LABEL_GPU_COUNT, LEDGER_KEY
from tenancy.units import MIB
from tests.support.exporters import add_exporter, card, device_reader
from tests.support.fake_cluster import DOMAIN, LABELS, NAMES, SYSTEM, T4, FakeCluster, FakeTime, Served
from tests.support.gating import ALWAYS, SETTINGS, TTS, add_deployment, path_of
from tests.support.hostile_api import HostileApi, received
from tests.support.hostile_fields import ABSENT, VALUES, fields, pod, with_value
from tests.support.in_memory_http import one_by_one
from tests.support.search import cases, dice

NODE, OTHER_NODE = "k8s-node1", "hostile"
START = datetime(2026, 6, 2, 12, 0, tzinfo=UTC)
POOL = replace(T4, device_count=2)
SHOWN = {**LABELS, LABEL_GPU_COUNT: "2"}
LEDGER = Ledger(
    domain=DOMAIN,
    pools=(POOL,),
    seats=(Seat(name="s", tenant="immich", pool=POOL.name, gpumem_mib=3000),),
    queue_tenants=("n",),
)
IN_A_PASS = 50
LEDGER_PATH = FakeCluster().ledger_path


@dataclass
class Bench:
    api: HostileApi = field(default_factory=HostileApi)
    output: io.StringIO = field(default_factory=io.StringIO)
    time: FakeTime = field(default_factory=FakeTime)

    def __post_init__(self) -> None:
        finalizers = [NAMES.capacity_finalizer]
        self.api.objects[LEDGER_PATH] = {
            "kind": "ConfigMap",
            "metadata": {"name": names.LEDGER, "resourceVersion": "1", "finalizers": finalizers},
            "data": {LEDGER_KEY: json.dumps(LEDGER.to_data())},
        }
        self.api.lists[LEDGER_PATH.rpartition("/")[0]] = [self.api.objects[LEDGER_PATH]]
        for agent in (names.WATCHDOG, names.GATE, names.RECONCILE):
            path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.journal(agent)}"
            self.api.objects[path] = {"metadata": {"name": "journal", "resourceVersion": "1"}}

    @property
    def clock(self) -> Clock:
        return replace(self.time.clock(), now=lambda: START + timedelta(seconds=self.time.seconds))

    @property
    def log(self) -> Log:
        return Log("test", self.output)

    @property
    def problems(self) -> list[str]:
        return [line["message"] for line in map(json.loads, self.output.getvalue().splitlines())]

    def writes(self, *parts: str) -> list[tuple[str, Any]]:
        found = [(path, body) for path, body in self.api.writes if any(part in path for part in parts)]
        return [each for each in found if "/events" not in each[0]]


def node(name: str, **changes: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": "u", "resourceVersion": "1", "labels": dict(SHOWN), "annotations": {}}
    status = {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}}
    return {"kind": "Node", "metadata": metadata, "status": status, **changes}


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


def trusted(name: str, namespace: str, mib: int | None, host: str = NODE, **metadata: Any) -> dict[str, Any]:
    found = pod(name, **metadata)
    found["metadata"] |= {"namespace": namespace, "labels": {}, "annotations": metadata.get("annotations", {})}
    found["metadata"]["ownerReferences"] = [
        {"controller": True, "kind": "ReplicaSet", "name": f"{name}-rs", "uid": f"rs-{name}"}
    ]
    limits = {} if mib is None else {NAMES.gpumem: str(mib), NAMES.gpu_count: "1"}
    found["spec"] |= {"nodeName": host, "containers": [{"name": "c", "resources": {"limits": limits}}]}
    return found


def hostile_pod(host: str, mib: int | None = None) -> dict[str, Any]:
    found = pod()
    found["spec"]["nodeName"] = host
    if mib is None:
        found["spec"]["containers"][0]["resources"]["limits"] = {"memory": "1Gi"}
    return found


def draw(kind: str, base: dict[str, Any], roll: Random, number: int) -> list[dict[str, Any]]:
    found, listed = [], fields(kind)
    for index in range(number):
        item = deepcopy(base)
        item["metadata"]["name"] = f"{base['metadata']['name']}-{index}"
        if kind == "Pod":
            item["metadata"]["uid"] = f"uid-hostile-{index}"
        path, value = roll.choice(listed), roll.choice((*VALUES, ABSENT))
        found.append(received(with_value(item, path, value, roll)))
    return found


def certain(base: dict[str, Any], *path: str) -> dict[str, Any]:
    found = deepcopy(base)
    found["metadata"] |= {"name": "certain", "uid": "uid-certain"}
    place = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = "x"
    return found


def shares(roll: Random, number: int, *kinds: str) -> dict[str, int]:
    drawn = [roll.choice(kinds) for _ in range(number)]
    return {kind: drawn.count(kind) for kind in kinds}


BAD_POD = ("spec", "containers")
BAD_NODE = ("metadata", "labels")
BAD_SLICE = ("spec", "devices")
Pass = Callable[[Random, int], tuple[Any, list[str], list[str]]]


def watchdog(roll: Random, number: int) -> tuple[Any, list[str], list[str]]:
    bench = Bench()
    api = bench.api
    queued = trusted("train", "n", 3000)
    queued["metadata"]["labels"] = {KUEUE_POD_SET_LABEL: "main"}
    queued["metadata"]["annotations"] = {KUEUE_WORKLOAD_ANNOTATION: "job-a"}
    api.lists[NODES] = [node(NODE)]
    api.lists[PODS] = [trusted("immich-ml", "immich", 3000), trusted("frigate", "frigate", 5000), queued]
    job_set = {"controller": True, "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "s"}
    queued["metadata"]["ownerReferences"] = [{**job_set, "apiVersion": "batch/v1", "kind": "Job", "uid": "j"}]
    work = {
        "Job": {"metadata": {"uid": "j", "ownerReferences": [job_set]}},
        "Workload": {"metadata": {"ownerReferences": [job_set], "resourceVersion": "1"}, "spec": {}},
    }
    by_kind = shares(roll, number, "Pod", "Node", *work)
    for kind, item in work.items():
        by_kind["Pod"] += max(by_kind[kind] - 1, 0)
        if by_kind[kind]:
            path, value = roll.choice(fields(kind)), roll.choice((*VALUES, ABSENT))
            work[kind] = received(with_value(item, path, value, roll))
    api.objects["/apis/batch/v1/namespaces/n/jobs/s"] = work["Job"]
    api.objects[f"/apis/{KUEUE_API}/namespaces/n/workloads/job-a"] = work["Workload"]
    if number:
        strange = node(OTHER_NODE, metadata={**node(OTHER_NODE)["metadata"], "labels": {}})
        api.hostile[PODS] = [*draw("Pod", hostile_pod(NODE, 3000), roll, by_kind["Pod"]), certain(pod(), *BAD_POD)]
        api.hostile[NODES] = [*draw("Node", strange, roll, by_kind["Node"]), certain(strange, *BAD_NODE)]
    add_exporters(api)
    run = WatchdogRun(
        settings=WatchdogSettings(
            ledger_namespace=SYSTEM, exporter_namespace="nodes", exporter_port=1, dry_run=False, interval_seconds=5,
            run_seconds=0, pod_name="w", tenants=("immich", "n"), minimum_age_seconds=120, cool_down_seconds=600,
            grace_seconds=20, evictions_per_hour=6, least_free_mib=0,
        ),
        api=api, clock=bench.clock, log=bench.log,
        scraper=scraper({"immich/immich-ml": 10_700, "frigate/frigate": 4_000}, {"n/train": 14_360}),
    )  # fmt: skip
    for _ in range(2):
        run.take()
        bench.time.seconds += 5
    evicted = [path for path, _ in bench.writes("/eviction") if "/n/" not in path]
    assert number or bench.writes("/workloads/"), "the Workload is deactivated"
    return evicted, bench.problems, ["pod n/certain", "node certain"]


def add_exporters(api: HostileApi) -> None:
    cluster = FakeCluster()
    add_exporter(Served(cluster=cluster, mount=None), node=NODE)  # type: ignore[arg-type]
    api.lists[pods_of("nodes")] = cluster.pods
    api.lists[PODS] += cluster.pods


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
    return Scraper(pages=one_by_one(lambda url: reader.metrics()[1].encode()))


class Following:
    all_open = True

    def take(self, seconds: float) -> list[Any]:
        return []

    def close(self) -> None:
        pass


def gate(roll: Random, number: int) -> tuple[Any, list[str], list[str]]:
    bench = Bench()
    api, cluster = bench.api, FakeCluster()
    other = replace(ALWAYS, name="ytdlp", deployment="ytdlp", namespace="n")
    for each in (TTS, other):
        add_deployment(cluster, each)
    api.objects |= cluster.objects
    api.lists[NODES] = [node(NODE)]
    api.lists[PODS] = [trusted("immich-ml", "immich", 3000)]
    if number:
        kinds = ("Pod", "Node", "Deployment", "ScaledObject")
        by_kind = shares(roll, number, *kinds)
        by_kind["Pod"] += max(by_kind["Deployment"] - 1, 0)
        strange = node(OTHER_NODE, metadata={**node(OTHER_NODE)["metadata"], "labels": {}})
        waiting = hostile_pod("", 3000)
        waiting["status"] = {"phase": "Pending", "conditions": waiting["status"]["conditions"]}
        for base in (hostile_pod(NODE), waiting):
            api.hostile[PODS] += draw("Pod", base, roll, by_kind["Pod"] // 2 + 1)
        api.hostile[PODS].append(certain(pod(), *BAD_POD))
        api.hostile[NODES] = [*draw("Node", strange, roll, by_kind["Node"]), certain(strange, *BAD_NODE)]
        scaler = {"metadata": {"namespace": "n", "name": "h"}, "spec": {"scaleTargetRef": {"name": "x"}}}
        for namespace in ("n", TTS.namespace):
            api.hostile[f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects"] = [
                *draw("ScaledObject", scaler, roll, by_kind["ScaledObject"] // 2),
                certain(scaler, "spec", "scaleTargetRef"),
            ]
        if by_kind["Deployment"]:
            path, value = roll.choice(fields("Deployment")), roll.choice((*VALUES, ABSENT))
            api.objects[path_of(other)] = received(with_value(api.objects[path_of(other)], path, value, roll))
    add_exporters(api)
    run = GateRun(
        settings=replace(SETTINGS, gates=(ALWAYS, other), exporter_port=1),
        api=api, clock=bench.clock, log=bench.log, scraper=scraper({"immich/immich-ml": 2_000}, {}),
    )  # fmt: skip
    run.cache.watch = lambda api, clock, sources: Following()
    for _ in range(3):
        run.take()
        bench.time.seconds += 10
    return bench.writes(path_of()), bench.problems, ["pod n/certain", "node certain", "ScaledObject n/certain"]


def reconcile(roll: Random, number: int) -> tuple[Any, list[str], list[str]]:
    bench = Bench()
    api = bench.api
    ledger = replace(LEDGER, pools=(replace(POOL, source=Source.DECLARED),))
    api.objects[LEDGER_PATH]["data"] = {LEDGER_KEY: json.dumps(ledger.to_data())}
    api.lists[NODES] = [node(NODE)]
    api.lists[PODS] = [trusted("immich-ml", "immich", 3000)]
    api.lists[SLICES] = [resource_slice(NODE)]
    if number:
        by_kind = shares(roll, number, "Pod", "Node", "ResourceSlice")
        api.lists[NODES].append(node(OTHER_NODE))
        add_hostile(api, roll, by_kind)
    run = Reconciler(
        settings=ReconcileSettings(ledger_namespace=SYSTEM, pod_name="r", interval_seconds=10, run_seconds=0),
        api=api, clock=bench.clock, log=bench.log,
    )  # fmt: skip
    run.attempt()
    wanted = ["pod n/certain", "node certain", "ResourceSlice certain"]
    return bench.writes(f"/{NODE}/status"), bench.problems, wanted


def add_hostile(api: HostileApi, roll: Random, by_kind: dict[str, int]) -> None:
    for path, kind, base, bad in (
        (PODS, "Pod", hostile_pod(OTHER_NODE, 3000), BAD_POD),
        (NODES, "Node", node(OTHER_NODE), BAD_NODE),
        (SLICES, "ResourceSlice", resource_slice(OTHER_NODE), BAD_SLICE),
    ):
        api.hostile[path] = [*draw(kind, base, roll, by_kind[kind]), certain(base, *bad)]


def guard(roll: Random, number: int) -> tuple[Any, list[str], list[str]]:
    bench = Bench()
    own = trusted("immich-ml", "n", None)
    bench.api.lists[PODS] = [own]
    if number:
        bench.api.hostile[PODS] = [*draw("Pod", hostile_pod(NODE), roll, number), certain(hostile_pod(NODE), *BAD_POD)]
    rule = AdjustmentRule(members=frozenset({"n/llm"}), total_mib=64_000, victim_adj=1000)
    follower = PodWatcher(api=bench.api, node=NODE, rule=rule, clock=bench.clock, log=bench.log)
    follower.informer.lists()
    for item in bench.api.hostile[PODS]:
        for kind in ("MODIFIED", "DELETED", "ADDED"):
            follower.informer.apply({"type": kind, "object": item})
    held: dict[int, int] = {}

    def hold(pid: int, container: Container, adj: int) -> AdjOutcome:
        held[pid] = adj
        return AdjOutcome.LOWERED

    groups = ["uid-immich-ml", *(f"uid-hostile-{index}" for index in range(number))]
    ProcessGuard(
        scan=lambda problems: {pid: Container(uid, "c") for pid, uid in enumerate(groups)},
        hold=hold, follower=follower, tell=lambda event: None, clock=bench.clock, log=bench.log,
    ).pass_once()  # fmt: skip
    return held[0], bench.problems, ["pod n/certain"]


def exporter(roll: Random, number: int) -> tuple[Any, list[str], list[str]]:
    bench = Bench()
    bench.api.lists[PODS] = [trusted("immich-ml", "immich", 3000)]
    bench.api.lists[NODES] = [node(NODE)]
    if number:
        bench.api.hostile[PODS] = [*draw("Pod", hostile_pod(NODE, 3000), roll, number), certain(pod(), *BAD_POD)]
    informer = RegistryInformer(
        api=bench.api, node=NODE, ledger_namespace=SYSTEM, clock=bench.clock, log=bench.log, slices=True
    )
    informer.informer.lists()
    for item in bench.api.hostile[PODS]:
        for kind in ("MODIFIED", "DELETED", "ADDED"):
            informer.informer.apply({"type": kind, "object": {**item, "kind": "Pod"}})
    used = {Container("uid-immich-ml", "aaa"): 4000 * MIB}
    used |= {Container(f"uid-hostile-{index}", "aaa"): MIB for index in range(number)}
    reader = DeviceReader(
        read=lambda: NodeUse((DeviceUse(device=card(5000), used_bytes=used),)),
        registry=informer, clock=bench.clock, interval_seconds=60,
    )  # fmt: skip
    reader.sample()
    status, body = reader.metrics()
    lines = [line for line in body.splitlines() if 'pod="immich-ml"' in line or line.startswith("gpu_device")]
    unreadable = [item for item in bench.api.hostile[PODS] if isinstance(judged(Pod(item).check), Unjudged)]
    wanted = [f"pod {Pod(item)} " for item in unreadable]
    return (status, lines), bench.problems, ["pod n/certain", *wanted]


def extender(roll: Random, number: int) -> tuple[Any, list[str], list[str]]:
    bench = Bench()
    api = bench.api
    api.lists[NODES] = [node(NODE)]
    api.lists[PODS] = [trusted("low", "immich", 9000), trusted("lower", "immich", 9000)]
    for index, each in enumerate(api.lists[PODS]):
        each["metadata"]["annotations"] = {NAMES.device_uuid: f"GPU-{index}", NAMES.device_index: str(index)}
        each["spec"]["priority"] = -index
    api.lists[SLICES] = [resource_slice(NODE)]
    budget = {"metadata": {"namespace": "immich", "name": "b"}, "spec": {"selector": {"matchLabels": {"a": "b"}}}}
    api.lists[disruption_budgets_of("immich")] = [budget]
    if number:
        by_kind = shares(roll, number, "Pod", "Node", "ResourceSlice", "PodDisruptionBudget")
        api.lists[NODES].append(node(OTHER_NODE))
        add_hostile(api, roll, by_kind)
        budgets = {**budget, "status": {"disruptionsAllowed": 1, "disruptedPods": {}}}
        api.hostile[disruption_budgets_of("n")] = draw(
            "PodDisruptionBudget", budgets, roll, by_kind["PodDisruptionBudget"]
        )
    verbs, informers = handlers(bench)
    informers.list_all()
    for path in (PODS, NODES, SLICES):
        for item in api.hostile[path]:
            for kind in ("MODIFIED", "DELETED", "ADDED"):
                informers.informer.apply({"type": kind, "object": item})
    for item in api.hostile[PODS]:
        item["spec"] = {**item["spec"], "nodeName": None} if isinstance(item.get("spec"), dict) else item.get("spec")
        for verb, arguments in (
            ("filter", {"Pod": item, "NodeNames": [OTHER_NODE]}),
            ("preempt", {"Pod": item, "NodeNameToMetaVictims": {OTHER_NODE: {"Pods": [{"UID": "uid-hostile-0"}]}}}),
        ):
            assert ask(verbs, verb, arguments)[0] in (200, 503)
    asking = pod("new")
    asking["metadata"]["namespace"] = "immich"
    asking["spec"] |= {
        "containers": trusted("new", "immich", 9000)["spec"]["containers"],
        "priority": 9,
        "nodeName": "",
    }
    small = deepcopy(asking)
    small["metadata"]["uid"] = "uid-small"
    small["spec"]["containers"] = trusted("small", "immich", 2000)["spec"]["containers"]
    answers = [
        ask(verbs, "filter", {"Pod": asking, "NodeNames": [NODE]}),
        ask(verbs, "preempt", {"Pod": asking, "NodeNameToMetaVictims": {NODE: {"Pods": [{"UID": "uid-low"}]}}}),
        ask(verbs, "preempt", {"Pod": asking, "NodeNameToMetaVictims": {NODE: {"Pods": []}}}),
        ask(verbs, "filter", {"Pod": small, "NodeNames": [NODE]}),
        ask(verbs, "bind", {"PodName": "small", "PodNamespace": "immich", "PodUID": "uid-small", "Node": NODE}),
    ]
    bound = [body["metadata"]["annotations"][NAMES.device_uuid] for _, body in bench.writes("/binding")]
    return (answers, bound), bench.problems, ["pod n/certain", "node certain"]


def handlers(bench: Bench) -> tuple[VerbHandler, Informers]:
    api, clock, log, cache = bench.api, bench.clock, bench.log, Cache()
    informers = Informers(api=api, cache=cache, ledger_namespace=SYSTEM, clock=clock, log=log)
    informers.ledger, informers.problem = LEDGER, None
    placing = PlacementVerbs(
        informers=informers, cache=cache, holds=SeatHolds(seconds=60, led_since=lambda: 0.0, clock=clock),
        tell=lambda event: None, clock=clock,
        budgets=DisruptionBudgetReader(api=api, clock=clock, problems=ItemProblems(log=log)),
    )  # fmt: skip
    binder = Binder(
        connections=ClientPool(lambda: api, clock), cache=cache, requests=placing.requests, ledger=lambda: LEDGER,
        leads=lambda: True, clock=clock, log=log,
    )  # fmt: skip
    waiting = PendingPods(
        cache=cache, ledger=lambda: LEDGER, nudge=lambda: None, serves=lambda: True, clock=clock, log=log
    )
    ready = Readiness(informers=informers, leadership=AlwaysLeader(since=0.0), measured=lambda: True)
    return VerbHandler(ready, placing, binder, waiting), informers


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
VALUES_OF_AN_AGENT = 17_500


@pytest.mark.search
@pytest.mark.parametrize("agent", PASSES)
def test_a_pass_ends_and_decides_the_same_about_every_other_object(agent: str) -> None:
    run, roll = PASSES[agent], dice(agent)
    expected, _, _ = run(roll, 0)
    assert expected
    for _ in range(cases(200, soak=VALUES_OF_AN_AGENT) // IN_A_PASS):
        found, problems, wanted = run(roll, IN_A_PASS)
        assert found == expected
        missing = [name for name in wanted if not any(name in problem for problem in problems)]
        assert not missing, problems


def test_the_full_search_tries_100_000_values() -> None:
    assert len(PASSES) * VALUES_OF_AN_AGENT >= 100_000
