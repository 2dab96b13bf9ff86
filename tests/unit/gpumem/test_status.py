"""Tests that status judges each part of the platform. An unreadable part is unknown."""

from dataclasses import replace
from typing import Any

import pytest

from gpumem import cluster
from gpumem.paper import Paper
from gpumem.status import State, Status, status, status_text
from tenancy.names import RECONCILE, SCHEDULER, WATCHDOG
from tests.support.fake_cluster import T4
from tests.support.kubectl import (
    BATCH,
    EXPORTERS,
    LEDGER_OF_PROD,
    SYSTEM,
    FakeApi,
    api,
    node,
)

CRON_JOBS = f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{EXPORTERS}/daemonsets"
KUEUE = "/apis/apps/v1/deployments"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
LABELS = {"app.kubernetes.io/part-of": "gpu-tenancy"}


def made(name: str, spec: dict[str, Any], status: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": SYSTEM, "labels": LABELS | labels}, "spec": spec, "status": status}


def cron_job(name: str, last: str | None = "2026-11-22T11:59:20Z", **spec: Any) -> dict[str, Any]:
    return made(name, spec, {"lastSuccessfulTime": last} if last else {})


def healthy() -> FakeApi:
    found = api(nodes=[node("k8s-node1"), node("k8s-node2", "whole")])
    found.lists |= {
        CRON_JOBS: [cron_job(RECONCILE), cron_job(WATCHDOG)],
        DEPLOYMENTS: [made(SCHEDULER, {"replicas": 2}, {"readyReplicas": 2})],
        DAEMON_SETS: [made("gpu-memory-exporter", {}, {"desiredNumberScheduled": 1, "numberReady": 1})],
        KUEUE: [made("kueue", {}, {"readyReplicas": 1}, **{"app.kubernetes.io/name": "kueue"})],
        QUEUES: [{"metadata": {"name": "gpu-cq"}, "status": {"conditions": [{"type": "Active", "status": "True"}]}}],
    }
    return found


def judged(found: FakeApi) -> Status:
    return status(found, cluster.read(found, SYSTEM, str), SYSTEM)  # type: ignore[arg-type]


def wrong(found: Status) -> dict[str, str]:
    return {part.name: part.text for part in found.parts if part.state is State.WRONG}


def test_a_healthy_platform_is_well() -> None:
    found = judged(healthy())
    assert (found.fine, wrong(found)) == (True, {})
    names = ["ledger", RECONCILE, WATCHDOG, SCHEDULER, "gpu-memory-exporter", "pool t4", "pool batch", "kueue"]
    assert [part.name for part in found.parts] == [*names, "ClusterQueue gpu-cq"]
    assert f"{RECONCILE}       well   last successful run 40s ago" in status_text(found, Paper())


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (cron_job(WATCHDOG, "2026-11-22T11:50:00Z"), "last successful run 10m ago: kubectl -n "),
        (cron_job(WATCHDOG, "2026-11-22T12:10:00Z"), "last successful run 0s ago: kubectl -n "),
        (cron_job(WATCHDOG, None), "no run has succeeded yet: kubectl -n "),
        (cron_job(WATCHDOG, suspend=True), "its CronJob is suspended: set spec.suspend to false"),
    ],
    ids=["silent", "of the future", "never", "suspended"],
)
def test_an_agent_without_a_recent_run_is_wrong(job: dict[str, Any], text: str) -> None:
    api_server = healthy()
    api_server.lists[CRON_JOBS][1] = job
    found = wrong(judged(api_server))
    assert found.keys() == {WATCHDOG}
    assert found[WATCHDOG].startswith(text)


def test_reconcile_must_be_there_also_by_a_ledger_that_names_no_agents() -> None:
    api_server = healthy()
    api_server.lists[CRON_JOBS] = [cron_job(WATCHDOG)]
    assert wrong(judged(api_server)) == {RECONCILE: "it is declared, and is not there: run make up"}


def test_a_kueue_that_another_team_installed_under_another_label_is_not_known() -> None:
    api_server = healthy()
    api_server.lists[KUEUE] = []
    (part,) = [each for each in judged(api_server).parts if each.state is State.UNKNOWN]
    assert part.text.startswith("no Deployment has the label app.kubernetes.io/name=kueue")


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (DEPLOYMENTS, made(SCHEDULER, {"replicas": 2}, {"readyReplicas": 1})),
        (DEPLOYMENTS, made(SCHEDULER, {"replicas": 0}, {})),
        (DAEMON_SETS, made("gpu-memory-exporter", {}, {"desiredNumberScheduled": 2, "numberReady": 1})),
    ],
)
def test_a_workload_without_all_its_pods_is_wrong(path: str, part: dict[str, Any]) -> None:
    api_server = healthy()
    api_server.lists[path] = [part]
    ((name, text),) = wrong(judged(api_server)).items()
    assert (name, "pods ready: kubectl -n " in text) == (part["metadata"]["name"], True)


def test_a_queue_that_is_not_active_is_wrong() -> None:
    api_server = healthy()
    stopped = {"type": "Active", "status": "False", "message": "Can't admit new workloads: is stopped."}
    api_server.lists[QUEUES][0]["status"]["conditions"] = [stopped]
    assert wrong(judged(api_server)) == {"ClusterQueue gpu-cq": "not active: Can't admit new workloads: is stopped."}


@pytest.mark.parametrize(
    ("least", "there", "state", "text"),
    [
        (0, 0, State.WELL, "0 nodes, 0 devices"),
        (0, 2, State.WELL, "2 nodes, 2 devices"),
        (1, 0, State.WRONG, "0 of 1 nodes are there"),
    ],
)
def test_nodes_that_the_autoscaler_adds_on_demand_are_not_missing(
    least: int, there: int, state: State, text: str
) -> None:
    batch = replace(BATCH, nodes=3, least_nodes=least)
    nodes = [node("k8s-node1"), *(node(f"batch-{number}", "whole") for number in range(there))]
    found = api(nodes=nodes, ledger=replace(LEDGER_OF_PROD, pools=(T4, batch)))
    found.lists |= {path: listed for path, listed in healthy().lists.items() if path not in found.lists}
    assert {part.name: (part.state, part.text) for part in judged(found).parts}["pool batch"] == (state, text)


def test_an_unreadable_object_is_unknown() -> None:
    api_server = healthy()
    api_server.lists[DEPLOYMENTS] = [made(SCHEDULER, {"replicas": "many"}, {})]
    (part,) = [each for each in judged(api_server).parts if each.state is State.UNKNOWN]
    assert part.name == SCHEDULER


def test_an_unreadable_time_is_unknown_and_the_others_are_judged() -> None:
    api_server = healthy()
    api_server.lists[CRON_JOBS][1] = cron_job(WATCHDOG, "yesterday")
    found = judged(api_server)
    assert [part.name for part in found.parts if part.state is State.UNKNOWN] == [WATCHDOG]
    assert wrong(found) == {}
