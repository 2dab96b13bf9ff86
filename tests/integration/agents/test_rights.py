"""Tests that each agent's role allows exactly the requests that the agent sends. A fake API server records the
requests.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agents.gate import main as gate
from agents.guard import main as guard
from agents.guard.follow import PodWatcher
from agents.guard.oom_score_adj import AdjOutcome
from agents.kube.events import Recorder
from agents.node.cgroup import Container
from agents.reconcile import main as reconcile
from agents.runtime.settings import read
from agents.watchdog import main as watchdog
from components.agents.exporter import Exporter, ExporterArgs
from components.agents.gate import Gate, GateArgs, GateSpec, OnDemandSpec, WindowDemand
from components.agents.guard import Guard, GuardArgs
from components.agents.reconcile import Capacity, CapacityArgs
from components.agents.watchdog import Watchdog, WatchdogArgs, WatchdogSpec
from tenancy import names
from tenancy.choices import Source
from tenancy.frameworks import FrameworkName
from tenancy.ledger import Ledger
from tenancy.units import MIB
from tests.support.api_server import ServedOverTls
from tests.support.card import Card
from tests.support.engine import Graph
from tests.support.exporters import card, measured
from tests.support.fake_cluster import T4
from tests.support.gating import TTS as GATE
from tests.support.gating import add_deployment, add_journal
from tests.support.given import CLUSTER, CODE, LEDGER, declared, environment
from tests.support.in_memory_http import serving
from tests.support.informing import HurriedTime, running
from tests.support.memory_pools import NODE_4
from tests.support.paths import ROOT
from tests.support.rights import Call, call, granted
from tests.support.waiting import PATIENCE_SECONDS, eventually
from toolchain.cluster import fake_nvml
from toolchain.cluster.fake_nvml import FakeNvml
from toolchain.cluster.process import free_ports

FREE_MIB = 8192
CARD = f"device GPU-1 {15360 * MIB} {FREE_MIB * MIB} {7168 * MIB}"
FROM_FIELDS = {"NODE_NAME": "node", "POD_NAME": "pod"}


def calls(busy: ServedOverTls) -> set[Call]:
    return {call(method, url) for method, url in busy.cluster.requests}


def verbs(busy: ServedOverTls) -> set[str]:
    return {each.verb for each in calls(busy)}


def environ(busy: ServedOverTls, graph: Graph, **changes: str) -> dict[str, str]:
    given = environment(dict(graph.one("CronJob").inputs))
    return {**given, "POD_NAME": "pod", "RUN_SECONDS": "0", **busy.environ(), **changes}


@pytest.fixture
def busy(served: ServedOverTls) -> Iterator[ServedOverTls]:
    with measured(served, card(FREE_MIB)):
        (exporter,) = served.cluster.pods
        exporter["metadata"]["namespace"] = names.node_agent_namespace(CLUSTER.system_namespace)
        yield served


def reconciled(busy: ServedOverTls) -> tuple[Graph, set[Call]]:
    kept = f"/api/v1/namespaces/{CLUSTER.system_namespace}/configmaps/{names.journal(names.RECONCILE)}"
    busy.cluster.objects[kept] = {"metadata": {"resourceVersion": busy.cluster.next_version()}}
    by_slices = replace(LEDGER, pools=tuple(replace(pool, source=Source.DECLARED) for pool in LEDGER.pools))
    args = CapacityArgs(cluster=CLUSTER, code=CODE, ledger=by_slices, reconcile=True)
    graph = declared(Capacity, "c", args)
    stored = Ledger.from_data(json.loads(busy.cluster.objects[busy.cluster.ledger_path]["data"][names.LEDGER_KEY]))
    busy.cluster.add_ledger(*(replace(pool, source=Source.DECLARED) for pool in stored.pools))
    assert reconcile.start(environ(busy, graph, RUN_SECONDS="0", INTERVAL_SECONDS="60"), busy.log()) == 0
    given = environ(busy, graph, RUN_SECONDS="3600", INTERVAL_SECONDS="3600")
    busy.cluster.watches_last = True
    with ThreadPoolExecutor() as pool:
        run = pool.submit(reconcile.start, given, busy.log())
        busy.cluster.await_watches(4)
        busy.cluster.delete_ledger()
        assert run.result() == 0
    return graph, calls(busy)


def watched(busy: ServedOverTls) -> tuple[Graph, set[Call]]:
    args = WatchdogArgs(
        cluster=CLUSTER,
        code=CODE,
        spec=WatchdogSpec(armed=True),
        budgeted=["team-a"],
        queued=["team-a"],
        frameworks=[FrameworkName.TRAIN_JOB, FrameworkName.RAY_JOB],
    )
    graph = declared(Watchdog, "w", args)
    busy.cluster.add_ledger(T4, queue_tenants=("team-a",))
    workload = f"/apis/{names.KUEUE_API}/namespaces/team-a/workloads/job-train"
    job, jobset, top, ray = (
        [{"apiVersion": version, "kind": kind, "name": "train", "uid": kind, "controller": True}]
        for kind, version in (
            ("Job", "batch/v1"),
            ("JobSet", "jobset.x-k8s.io/v1alpha2"),
            ("TrainJob", "trainer.kubeflow.org/v1alpha1"),
            ("RayCluster", "ray.io/v1"),
        )
    )
    busy.cluster.objects |= {
        workload: {"metadata": {"resourceVersion": "1", "ownerReferences": top}, "spec": {}},
        "/apis/batch/v1/namespaces/team-a/jobs/train": {"metadata": {"uid": "Job", "ownerReferences": jobset}},
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets/train": {
            "metadata": {"uid": "JobSet", "ownerReferences": top}
        },
    }
    kueue = {
        "labels": {names.KUEUE_POD_SET_LABEL: "main"},
        "annotations": {names.KUEUE_WORKLOAD_ANNOTATION: "job-train"},
    }
    card = Card(busy)
    card.add("app", 14_900, namespace="team-a")
    card.add("train", 0, namespace="team-a", ownerReferences=job, **kueue)
    card.add("ray", 0, namespace="team-a", ownerReferences=ray, **kueue)
    busy.cluster.held_by_budget.add("app")
    with serving(card.script) as port:
        given = environ(busy, graph, EXPORTER_PORT=str(port))
        for used in ({"app": 14_900, "train": 0, "ray": 0}, {"app": 0, "train": 7_400, "ray": 7_400}):
            card.mib = used
            settings = read(watchdog.Settings, given)
            assert watchdog.run(replace(settings, run_seconds=7), busy.api(), card.clock(), busy.log()) == 0
    return graph, calls(busy)


def gated(busy: ServedOverTls) -> tuple[Graph, set[Call]]:
    now, hour = datetime.now(UTC), timedelta(hours=1)
    always = WindowDemand(between=f"{now - hour:%H:%M}-{now + hour:%H:%M}")
    on_demand = {
        "tts": OnDemandSpec(tenant="voice", pool="t4", need_mib=1, window=always),
        "books": OnDemandSpec(tenant="media", pool="t4", need_mib=1, window=always, deployment="worker"),
    }
    for each in (GATE, replace(GATE, namespace="media", deployment="worker")):
        add_deployment(busy.cluster, each)
    add_journal(busy.cluster)
    args = GateArgs(cluster=CLUSTER, code=CODE, spec=GateSpec(armed=True), on_demand=on_demand)
    graph = declared(Gate, "g", args)
    given = environ(busy, graph, EXPORTER_PORT=str(busy.exporter_port))
    given["GATES"] = given["GATES"].replace('"samples":3', '"samples":1')
    assert gate.start(given, busy.log()) == 0
    return graph, calls(busy)


def exported(busy: ServedOverTls) -> tuple[Graph, set[Call]]:
    args = ExporterArgs(cluster=CLUSTER, code=CODE, ledger=LEDGER, publish_devices=True)
    graph = declared(Exporter, "e", args)
    nvml = FakeNvml(busy.mount, busy.mount / "card")
    if not fake_nvml.can_build():
        pytest.skip("NO C COMPILER: what the exporter may do is not held against what it does")
    fake_nvml.build(nvml.folder)
    nvml.show(CARD)
    (port,) = free_ports(1)
    given = {
        **environment(dict(graph.one("DaemonSet").inputs)),
        **busy.environ(),
        **nvml.environ,
        "PORT": str(port),
        "INTERVAL_SECONDS": "1",
        "NODE_NAME": "k8s-node1",
    }
    busy.cluster.watches_last = True
    with subprocess.Popen([sys.executable, "-m", "agents", "exporter"], cwd=ROOT, env=given) as process:
        eventually(lambda: "create" in verbs(busy), state=lambda: calls(busy))
        nvml.show(CARD, "broken 15")
        eventually(lambda: "patch" in verbs(busy), state=lambda: calls(busy))
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
    return graph, calls(busy)


def guarded(busy: ServedOverTls) -> tuple[Graph, set[Call]]:
    graph = declared(Guard, "g", GuardArgs(cluster=CLUSTER, code=CODE, pools=(NODE_4,)))
    settings = read(guard.Settings, {**environment(dict(graph.one("DaemonSet").inputs)), **FROM_FIELDS})
    labels = {"namespace": "inference", "name": "llm", "uid": "uid-llm"}
    spec = {"nodeName": "node", "priorityClassName": "homelab-critical", "containers": []}
    busy.cluster.pods.append({"metadata": labels, "spec": spec, "status": {"phase": "Running"}})
    busy.cluster.add_node("node")
    follower = PodWatcher(
        api=busy.api(),
        node="node",
        rule=guard.rule_of(settings, Path("/proc")),
        clock=HurriedTime().clock(),
        log=busy.log(),
    )
    with running(follower.informer, busy.cluster):
        pass
    recorder = Recorder(api=busy.api(), controller=names.GUARD, instance="pod")
    checked = guard.ProcessGuard(
        scan=lambda problems: {7: Container("uid-llm", "c")},
        hold=lambda pid, container, adj: AdjOutcome.LOWERED,
        follower=follower,
        tell=lambda event: recorder.record(event, datetime.now(UTC)),
        clock=busy.time.clock(),
        log=busy.log(),
    )
    checked.pass_once()
    return graph, calls(busy)


AGENTS = {
    names.RECONCILE: reconciled,
    names.WATCHDOG: watched,
    names.GATE: gated,
    names.EXPORTER: exported,
    names.GUARD: guarded,
}


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_may_do_what_it_does_and_does_what_it_may(agent: str, busy: ServedOverTls) -> None:
    graph, made = AGENTS[agent](busy)
    held = granted(graph)
    assert made, "the run called nothing"
    assert {c for c in made if not any(right.covers(c) for right in held)} == set(), "no right for these calls"
    assert {right for right in held if not any(right.covers(c) for c in made)} == set(), "rights that nothing uses"
