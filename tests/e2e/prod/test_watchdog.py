"""Runs the watchdog on prod, in the container of its CronJob and with its real token. The test writes the metrics of
the exporter.
"""

import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field

import pytest

from tenancy import names
from tests.support.curves import T4_MIB, Use, answer
from tests.support.e2e import plugin
from tests.support.e2e.agents import give, start
from tests.support.e2e.rollout import (
    GPUMEM,
    SHARED,
    SYSTEM,
    Object,
    Rollout,
    condition,
    container,
    cron_job,
    deployment,
    job,
    job_pods,
    jobs,
    pods,
)
from tests.support.e2e.scripted import PORT, Scripted, quick
from tests.support.waiting import becomes, eventually
from toolchain.cluster.background import call_repeatedly

NODE = "k8s-node1"
NODES = names.node_agent_namespace(SYSTEM)
TURN_SECONDS = 0.7
TOGETHER_SECONDS = "30"
DRIVER_MIB, STEADY_MIB, FREE_MIB = 450, 1800, 610
# The namespace, the app and the budget in MiB of each pod.
RESIDENTS = (("immich", "immich-ml", "3000"), ("frigate", "frigate", "2000"))
COOL_DOWN = "COOL_DOWN_SECONDS"
CRON_JOB = cron_job(names.WATCHDOG)
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2"


@dataclass
class Card:
    prod: Rollout
    script: Scripted
    mib: dict[str, int] = field(default_factory=dict)
    turns: int = 0

    def show(self) -> None:
        self.turns += 1
        found = self.prod.items(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}")
        uses = [
            Use(pod["metadata"]["namespace"], pod["metadata"]["name"], pod["metadata"]["uid"], self.use(pod))
            for pod in found
            if GPUMEM in pod["spec"]["containers"][0]["resources"].get("limits", {})
        ]
        self.script.change(metrics=answer(uses, age_seconds=self.turns % 89 / 100, driver_mib=DRIVER_MIB))

    def use(self, pod: Object) -> int:
        return self.mib.get(pod["metadata"]["uid"], STEADY_MIB)

    def pod(self, namespace: str, app: str) -> str | None:
        for found in self.prod.items(f"{pods(namespace)}?labelSelector=app%3D{app}"):
            if found["status"].get("phase") == "Running" and "deletionTimestamp" not in found["metadata"]:
                return str(found["metadata"]["uid"])
        return None

    def runs_away(self, namespace: str, app: str, *, beside: int = 1) -> str:
        uid = str(eventually(lambda: self.pod(namespace, app), f"{app} runs"))
        self.mib[uid] = T4_MIB - DRIVER_MIB - beside * STEADY_MIB - FREE_MIB
        return uid

    def told(self, namespace: str, reason: str, uid: str) -> list[str]:
        def notes() -> list[str]:
            found = self.prod.events(namespace, reason)
            return [str(event["note"]) for event in found if event["regarding"]["uid"] == uid]

        told: list[str] = eventually(notes, f"{reason} is told")
        return told

    def await_replaced(self, namespace: str, app: str, uid: str) -> None:
        eventually(lambda: self.pod(namespace, app) not in (None, uid), f"{app} has another pod")


@pytest.fixture(scope="module")
def prod(stack: Rollout) -> Iterator[Rollout]:
    stack.settle(quick, runs=[names.WATCHDOG])
    declared = stack.get(CRON_JOB)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    quicker = deepcopy(declared)
    give(quicker, **{COOL_DOWN: "1"})
    declare(stack, quicker["containers"])
    yield stack
    declare(stack, declared["containers"])


def declare(prod: Rollout, containers: list[Object]) -> None:
    pod = {"spec": {"containers": containers}}
    prod.cluster.api.patch(CRON_JOB, {"spec": {"jobTemplate": {"spec": {"template": pod}}}})


@pytest.fixture(scope="module")
def card(prod: Rollout) -> Iterator[Card]:
    script = Scripted(prod.cluster, NODES, "scripted")
    script.stand_in_for_the_exporter(NODE, PORT)
    for namespace, app, mib in RESIDENTS:
        prod.cluster.api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment(app, mib))
    found = Card(prod, script)
    with call_repeatedly(found.show, TURN_SECONDS):
        yield found
    for namespace, app, _ in RESIDENTS:
        prod.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments/{app}")
    eventually(lambda: not any(found.pod(namespace, app) for namespace, app, _ in RESIDENTS), "the residents have gone")


def quota_used(prod: Rollout) -> str:
    (flavor,) = prod.get(f"{WORKLOADS}/clusterqueues/memory-cq")["status"]["flavorsUsage"]
    return str(flavor["resources"][0]["total"])


def last_words(prod: Rollout, name: str) -> str | None:
    found = job_pods(prod, SYSTEM, name)
    for state in (status["state"] for pod in found for status in pod["status"].get("containerStatuses", ())):
        if "terminated" in state:
            ended = state["terminated"]
            return "succeeded" if ended["exitCode"] == 0 else str(ended.get("message"))
    return None


def test_one_of_two_watchdogs_recycles_the_runaway_and_its_neighbour_stays(card: Card) -> None:
    neighbour = eventually(lambda: card.pod("frigate", "frigate"), "the neighbour runs")
    eventually(lambda: card.pod("immich", "immich-ml"), "immich-ml runs")
    runs = [start(card.prod, names.WATCHDOG, RUN_SECONDS=TOGETHER_SECONDS) for _ in range(2)]
    running = f"{pods(SYSTEM)}?labelSelector={names.LABEL_NAME}%3D{names.WATCHDOG}&fieldSelector=status.phase%3DRunning"
    eventually(lambda: len(card.prod.items(running)) >= 2, "two watchdogs run")
    began = time.monotonic()
    uid = card.runs_away("immich", "immich-ml")
    card.await_replaced("immich", "immich-ml", uid)
    print(f"replaced {time.monotonic() - began:.1f} s after it ran away")
    (note,) = card.told("immich", names.EVENT_RECYCLED, uid)
    assert note.startswith("evicted because GPU 0 of k8s-node1 has 610 MiB free, its floor is 1536, and immich/immich-")
    recycled = (event["regarding"] for event in card.prod.events("immich", names.EVENT_RECYCLED))
    (pod,) = {each["name"] for each in recycled if each["uid"] == uid}
    becomes(lambda: plugin.reasons(card.prod.cluster.kubeconfig, pod, "immich"), ["recycled"], "the plugin says why")
    assert card.pod("frigate", "frigate") == neighbour
    for run in runs:
        assert eventually(lambda run=run: last_words(card.prod, run), f"{run} ends") == "succeeded"
    assert len(card.told("immich", names.EVENT_RECYCLED, uid)) == 1


def test_a_queued_job_gives_its_quota_back(card: Card) -> None:
    manifest = job("train", "lab-memory", resource=GPUMEM, priority="gpu-batch")
    template = manifest["spec"]["template"]
    template["metadata"] = {"labels": {"app": "train"}}
    template["spec"] |= {"nodeSelector": SHARED, "containers": [container({GPUMEM: "480"})]}
    card.prod.cluster.api.create(jobs("lab"), manifest)
    uid = card.runs_away("lab", "train", beside=2)
    (workload,) = card.prod.items(f"{WORKLOADS}/namespaces/lab/workloads")
    path = f"{WORKLOADS}/namespaces/lab/workloads/{workload['metadata']['name']}"
    becomes(lambda: condition(card.prod.get(path), "QuotaReserved").get("status"), "False", "the quota is free")
    assert card.prod.get(path)["spec"]["active"] is False
    assert card.prod.get(jobs("lab", "train"))["spec"]["suspend"] is True
    assert card.prod.get(jobs("lab", "train"))["status"].get("failed") is None
    becomes(lambda: quota_used(card.prod), "0", "the queue shows it")
    (note,) = card.told("lab", names.EVENT_RECYCLED, uid)
    name = workload["metadata"]["name"]
    assert note.startswith(f"Workload {name} was deactivated (spec.active false; true queues it again) because GPU 0")
    card.prod.cluster.api.patch(path, {"spec": {"active": True}})
    eventually(lambda: card.pod("lab", "train"), "it runs again")
    card.prod.delete(jobs("lab", "train"))


def test_a_disruption_budget_does_not_hold_the_runaway(card: Card) -> None:
    budgets = "/apis/policy/v1/namespaces/immich/poddisruptionbudgets"
    selector = {"matchLabels": {"app": "immich-ml"}}
    card.prod.cluster.api.create(
        budgets, {"metadata": {"name": "always"}, "spec": {"minAvailable": 1, "selector": selector}}
    )
    eventually(
        lambda: card.prod.get(f"{budgets}/always").get("status", {}).get("currentHealthy") == 1, "the budget is counted"
    )
    uid = card.runs_away("immich", "immich-ml")
    card.await_replaced("immich", "immich-ml", uid)
    (note,) = card.told("immich", names.EVENT_RECYCLED, uid)
    assert note.startswith(
        "deleted, although a PodDisruptionBudget refused its eviction (Cannot evict pod as it would "
    )
    card.prod.delete(f"{budgets}/always")
