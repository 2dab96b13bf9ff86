"""Runs each command of `kubectl gpumem` as a user would, on a real API server with prod."""

from collections.abc import Iterator
from typing import Any

import pytest

from tenancy import names
from tests.support.e2e import plugin
from tests.support.e2e.rollout import (
    GPUMEM,
    SHARED,
    Rollout,
    await_running,
    await_waiting,
    container,
    deployment,
    job,
    jobs,
    pods,
    submit,
    workload,
)
from tests.support.waiting import becomes, eventually
from toolchain.cluster import control_plane
from toolchain.cluster.api import MERGE
from toolchain.cluster.image import agent_image


def suspended(name: str) -> dict[str, Any]:
    made = job(name, None)
    made["spec"]["suspend"] = True
    return made


DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
NODE = "k8s-node1"


def shown(prod: Rollout, *arguments: str) -> dict[str, Any]:
    return plugin.shown(prod.cluster.kubeconfig, *arguments)


def reasons(prod: Rollout, target: str, namespace: str) -> list[str]:
    return plugin.reasons(prod.cluster.kubeconfig, target, namespace)


@pytest.fixture(scope="module")
def prod(stack: Rollout) -> Rollout:
    stack.settle(runs=[names.GATE])
    return stack


@pytest.fixture(scope="module")
def used(prod: Rollout) -> Iterator[Rollout]:
    ml = deployment("immich-ml", "3000", replicas=2)
    tts = deployment("tts", None, replicas=0)
    made = {"immich": ml, "tts": tts}
    try:
        for namespace, manifest in made.items():
            answer = prod.create(DEPLOYMENTS.format(namespace), manifest)
            assert answer.refusal is None, answer.refusal
        first = submit(prod, "team-a", job("gpumem-first", "team-a-gpu"))
        await_running(prod, "team-a", first)
        await_waiting(prod, "team-b", submit(prod, "team-b", job("gpumem-second", "team-b-gpu")), "quota")
        yield prod
    finally:
        for namespace, manifest in made.items():
            prod.delete(f"{DEPLOYMENTS.format(namespace)}/{manifest['metadata']['name']}")
        for team, name in (("team-a", "gpumem-first"), ("team-b", "gpumem-second")):
            prod.delete(jobs(team, name))
        eventually(lambda: not prod.items(pods("immich")), "the resident is gone")


def devices(report: dict[str, Any], node: str) -> list[dict[str, Any]]:
    (found,) = (each for each in report["nodes"] if each["node"] == node)
    return list(found["devices"])


def test_who_shows_the_resident_as_it_is_bound(used: Rollout) -> None:
    def bound() -> list[dict[str, Any]]:
        return [p for d in devices(shown(used, "who", "--pool", "t4"), NODE) for p in d["pods"]]

    (held,) = eventually(bound, "the resident is bound")
    assert (held["namespace"], held["seat"], held["declared_mib"]) == ("immich", "immich-ml", 3000)
    (pool,) = shown(used, "who", "--pool", "t4")["pools"]
    assert (pool["advertised_mib"], pool["promised_mib"], pool["held_mib"]) == (14000, 13336, 3000)
    (found,) = (each for each in used.items(pods("immich")) if each["metadata"]["uid"] == held["uid"])
    assert found["spec"]["nodeName"] == NODE


def test_why_says_what_the_api_server_the_gate_and_kueue_say(used: Rollout) -> None:
    eventually(lambda: "quota" in reasons(used, "deployment/immich-ml", "immich"), "the second replica is refused")
    becomes(lambda: reasons(used, "deployment/tts", "tts"), ["gate"], "the plugin says why tts does not run")

    def second() -> list[tuple[str, str]]:
        found = shown(used, "why", "job/gpumem-second", "-n", "team-b")["answers"]
        return [(answer["reason"], answer["text"]) for answer in found]

    becomes(second, [("queue", "ClusterQueue gpu-cq: 0 of 1 waiting are before it")], "the plugin says why it waits")
    assert plugin.gpumem(used.cluster.kubeconfig, "why", "job/gpumem-second", "-n", "team-b").returncode == 3


def admins(name: str, mib: str = "100", cpu: str = "10m", **spec: Any) -> dict[str, Any]:
    asks = container({GPUMEM: mib})
    asks["resources"]["requests"] = {"cpu": cpu}
    chosen = {"schedulerName": names.SCHEDULER_NAME, "nodeSelector": SHARED, "containers": [asks]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**chosen, **spec}}


def started(name: str, code: str, restart: str = "Never", **fields: Any) -> dict[str, Any]:
    main = {"name": "main", "image": agent_image(), "command": ["python", "-ISc", code], **fields}
    spec = {"nodeName": control_plane.NODE, "restartPolicy": restart, "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**spec, "containers": [main]}}


def of_immich(name: str, replicas: int = 1, **spec: Any) -> dict[str, Any]:
    made = deployment(name, "1800", replicas)
    made["spec"]["template"]["spec"].update(spec)
    return made


def paused(name: str) -> dict[str, Any]:
    made = of_immich(name)
    made["spec"]["paused"] = True
    return made


BARE = {"nodeSelector": SHARED, "containers": [container({"nvidia.com/gpu": "1"})]}
NO_SECRET = {"envFrom": [{"secretRef": {"name": "not-there"}}]}
NO_CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "not-there"}}]}
# Maps each reason of `kubectl gpumem why` to an object with this reason.
MADE: dict[str, tuple[str, dict[str, Any]]] = {
    "runs": (pods("kube-system"), admins("fills", "500", "8")),
    "node-sum": (pods("kube-system"), admins("waits", "12000")),
    "too-large": (pods("kube-system"), admins("large", "14001")),
    "selector": (pods("kube-system"), admins("elsewhere", nodeSelector={"nowhere": "at-all"})),
    "scheduling-gate": (pods("kube-system"), admins("gated", schedulingGates=[{"name": "example.com/wait"}])),
    "resources": (pods("kube-system"), admins("busy", cpu="10k")),
    "image": (pods("kube-system"), started("no-image", "", image="localhost/no:1", imagePullPolicy="Never")),
    "config": (pods("kube-system"), started("no-secret", "", **NO_SECRET)),
    "missing": (pods("kube-system"), admins("no-claim", **NO_CLAIM)),
    "crash": (pods("kube-system"), started("crashes", "raise SystemExit(3)", "Always")),
    "failed": (pods("kube-system"), started("fails", "raise SystemExit(3)")),
    "completed": (pods("kube-system"), started("ends", "")),
    "scaled": (DEPLOYMENTS.format("immich"), of_immich("asleep", 0)),
    "uncreated": (DEPLOYMENTS.format("immich"), paused("paused")),
    "class": (DEPLOYMENTS.format("immich"), of_immich("outranks", priorityClassName="not-there")),
    "admission": (DEPLOYMENTS.format("immich"), of_immich("bare", **BARE)),
    "unqueued": (jobs("default"), suspended("by-hand")),
    "scheduler": (pods("kube-system"), admins("unseen", schedulerName="nobodys")),
}
TARGETS = {"pods": "", "deployments": "deployment/", "jobs": "job/"}


@pytest.fixture(scope="module")
def made(used: Rollout) -> Iterator[Rollout]:
    try:
        for path, manifest in MADE.values():
            answer = used.create(path, manifest)
            assert answer.refusal is None, answer.refusal
        yield used
    finally:
        for path, manifest in MADE.values():
            used.delete(f"{path}/{manifest['metadata']['name']}")


@pytest.mark.parametrize("reason", MADE)
def test_why_reports_each_reason_of_a_real_cluster(made: Rollout, reason: str) -> None:
    path, manifest = MADE[reason]
    *_, namespace, kind = path.split("/")
    target = f"{TARGETS[kind]}{manifest['metadata']['name']}"
    becomes(lambda: reasons(made, target, namespace), [reason], f"{target} is told why")


@pytest.mark.parametrize(
    ("reason", "spec"),
    [
        ("cordoned", {"unschedulable": True}),
        ("taint", {"taints": [{"key": "for", "value": "others", "effect": "NoSchedule"}]}),
    ],
)
def test_a_node_that_takes_no_pod_is_reported(made: Rollout, reason: str, spec: dict[str, Any]) -> None:
    node = f"/api/v1/nodes/{NODE}"
    before = made.get(node)["spec"]
    made.cluster.api.patch(node, {"spec": spec}, MERGE)
    try:
        becomes(lambda: reasons(made, "waits", "kube-system"), [reason], f"{reason} is told")
    finally:
        made.cluster.api.patch(node, {"spec": {key: before.get(key) for key in spec}}, MERGE)


def test_a_pod_that_was_preempted_is_reported(made: Rollout) -> None:
    place = pods("kube-system")
    made.create(place, admins("urgent", "100", "10", priorityClassName="system-node-critical"))
    try:
        becomes(lambda: reasons(made, "fills", "kube-system"), ["evicted"], "evicted is told")
    finally:
        made.delete(f"{place}/urgent")


def test_a_job_that_is_preempted_or_deactivated_is_reported(used: Rollout) -> None:
    submit(used, "team-b", job("gpumem-urgent", "team-b-gpu", priority="gpu-urgent"))
    try:
        becomes(lambda: reasons(used, "job/gpumem-first", "team-a"), ["preempted"], "the first is preempted")
        path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-b/workloads"
        waiting = workload(used, "team-b", "gpumem-second")["metadata"]["name"]
        used.cluster.api.patch(f"{path}/{waiting}", {"spec": {"active": False}}, MERGE)
        becomes(lambda: reasons(used, "job/gpumem-second", "team-b"), ["deactivated"], "the second is deactivated")
    finally:
        used.delete(jobs("team-b", "gpumem-urgent"))


def test_missing_and_terminating_objects_are_reported(used: Rollout) -> None:
    assert plugin.gpumem(used.cluster.kubeconfig, "why", "never-was", "-n", "immich").returncode == 1
    place, kept = pods("kube-system"), admins("kept")
    kept["metadata"]["finalizers"] = ["example.com/keeps"]
    used.create(place, kept)
    used.delete(f"{place}/kept")
    try:
        becomes(lambda: reasons(used, "kept", "kube-system"), ["terminating"], "it is told to be going")
    finally:
        used.cluster.api.patch(f"{place}/kept", {"metadata": {"finalizers": None}}, MERGE)
