"""Dispatches Jobs of a manager cluster to a worker cluster, with two API servers and two real Kueues. The nodes and
pods are simulated.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tenancy.frameworks import GATES, FrameworkName
from tenancy.names import GPU
from tests.support.e2e import plugin
from tests.support.e2e.kueue_metrics import KueueMetrics
from tests.support.e2e.queued_stack import ACCOUNT, QUEUE, TEAM
from tests.support.e2e.queueing import GPUS, NODE, WORKLOADS, gpu_pods, rolled_out, workloads
from tests.support.e2e.rollout import (
    LOW,
    Object,
    Rollout,
    await_running,
    complete_pods,
    condition,
    job,
    job_pods,
    jobs,
    pods,
    submit,
    workload,
)
from tests.support.prod import raw
from tests.support.queued_work import path, work
from tests.support.waiting import becomes, eventually
from toolchain.cluster import cluster
from toolchain.cluster.extent import Extent

NEAR, GONE = "near", "gone"
FRAMEWORKS = [FrameworkName.JOB, FrameworkName.POD, FrameworkName.DEPLOYMENT, FrameworkName.STATEFUL_SET]
OF_THE_MANAGER = {
    "frameworks": [str(each) for each in FRAMEWORKS],
    "workload_priorities": {LOW: {"value": 100}},
    "local_queues": {QUEUE: {"tenant": TEAM, "cluster_queue": "gpus"}},
    "clusters": {
        NEAR: {"secret": f"{NEAR}-kubeconfig", "promises": {GPU: GPUS}},
        GONE: {"secret": f"{GONE}-kubeconfig", "promises": {GPU: 1}},
    },
    "flavors": {"far": {}},
    "cluster_queues": {"gpus": {"quotas": {"far": {GPU: {"nominal": GPUS}}}, "clusters": [NEAR, GONE]}},
}
SECRETS = "/api/v1/namespaces/kueue-system/secrets"
ADDRESS_OF_NOTHING = "https://127.0.0.1:1"


@dataclass(frozen=True)
class Clusters:
    manager: Rollout
    worker: Rollout

    def connect(self, name: str, server: str) -> None:
        data = {"kubeconfig": base64.b64encode(json.dumps(self._kubeconfig(server)).encode()).decode()}
        secret = {"metadata": {"name": f"{name}-kubeconfig"}, "data": data}
        if self.manager.create(SECRETS, secret).refusal is not None:
            self.manager.cluster.api.patch(f"{SECRETS}/{name}-kubeconfig", {"data": data})

    def _kubeconfig(self, server: str) -> dict[str, Any]:
        accounts = "/api/v1/namespaces/kueue-system/serviceaccounts"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {}}
        made = self.worker.cluster.api.create(f"{accounts}/{ACCOUNT}/token", request)
        authority = base64.b64encode(self.worker.cluster.folder.ca.read_bytes()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": NEAR, "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": ACCOUNT, "user": {"token": made["status"]["token"]}}],
            "contexts": [{"name": NEAR, "context": {"cluster": NEAR, "user": ACCOUNT}}],
            "current-context": NEAR,
        }

    @property
    def worker_address(self) -> str:
        return self.worker.cluster.api.server

    def active(self, name: str) -> tuple[str, str]:
        found = condition(self.manager.get(f"{WORKLOADS}/multikueueclusters/{name}"), "Active")
        return found.get("status", ""), found.get("reason", "")

    def why(self, name: str) -> dict[str, Any]:
        (answer,) = plugin.shown(self.manager.cluster.kubeconfig, "why", f"job/{name}", "-n", TEAM)["answers"]
        return dict(answer)


@pytest.fixture(scope="module")
def clusters(stack: Rollout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    kueue = {**raw()["kueue"], "multi_kueue": {"gc_interval": "5s", "worker_lost_timeout": "10s"}}
    with cluster.running(tmp_path_factory.mktemp("manager"), extent=Extent.SIMULATED) as running:
        folder, tenants = tmp_path_factory.mktemp("near"), {TEAM: {}}
        manager = rolled_out(running, folder, pools={}, tenants=tenants, queues=OF_THE_MANAGER, kueue=kueue)
        both = Clusters(manager, worker=stack)
        both.connect(NEAR, both.worker_address)
        both.connect(GONE, ADDRESS_OF_NOTHING)
        becomes(lambda: both.active(NEAR), ("True", "Active"), "the worker cluster is connected")
        yield both


@pytest.fixture(autouse=True)
def empty(clusters: Clusters) -> Iterator[None]:
    yield
    clusters.connect(NEAR, clusters.worker_address)
    both = (clusters.manager, clusters.worker)
    for stack, framework in ((stack, each) for stack in both for each in FRAMEWORKS):
        for found in stack.items(path(framework)):
            stack.delete(path(framework, found["metadata"]["name"]))

    def left() -> list[Object]:
        return [each for stack in both for each in (*workloads(stack, TEAM), *stack.items(pods(TEAM)))]

    eventually(lambda: not left(), "both clusters are empty", left)


def test_a_job_runs_in_the_worker_cluster_and_ends_in_the_manager_cluster(clusters: Clusters) -> None:
    manager, worker = clusters.manager, clusters.worker
    submit(manager, TEAM, job("train", QUEUE, GPUS))
    await_running(worker, TEAM, "train")
    copy = worker.get(jobs(TEAM, "train"))
    assert copy["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"] == "multikueue"
    assert manager.get(jobs(TEAM, "train"))["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue"
    becomes(
        lambda: workload(manager, TEAM, "train")["status"].get("clusterName"), NEAR, "the manager knows the cluster"
    )
    assert (gpu_pods(manager, TEAM), job_pods(manager, TEAM, "train")) == ([], [])
    becomes(lambda: clusters.why("train")["reason"], "elsewhere", "the plugin finds the Job in the worker cluster")
    assert clusters.why("train")["text"] == f"in worker cluster {NEAR}"

    complete_pods(worker, TEAM, "train")
    eventually(lambda: manager.get(jobs(TEAM, "train"))["status"].get("succeeded") == 1, "the Job succeeds")
    finished = eventually(lambda: condition(workload(manager, TEAM, "train"), "Finished"), "its Workload ends after it")
    assert (finished["status"], finished["reason"]) == ("True", "Succeeded")
    becomes(lambda: worker.items(jobs(TEAM)), [], "Kueue deletes the copy")


@pytest.mark.parametrize("framework", FRAMEWORKS[1:], ids=str)
def test_pods_run_in_the_worker_cluster_and_keep_their_gate_in_the_manager_cluster(
    clusters: Clusters, framework: FrameworkName
) -> None:
    answer = clusters.manager.create(path(framework), work(framework))
    assert answer.refusal is None, answer.refusal
    count = 1 if framework is FrameworkName.POD else 2

    def running() -> list[str]:
        return [
            pod["spec"]["nodeName"] for pod in gpu_pods(clusters.worker, TEAM) if pod["status"]["phase"] == "Running"
        ]

    becomes(running, [NODE] * count, "the pods run in the worker cluster")
    held = clusters.manager.items(pods(TEAM))
    assert {pod["spec"]["schedulingGates"][0]["name"] for pod in held} == {GATES[0]}
    kubeconfig, name = clusters.manager.cluster.kubeconfig, held[0]["metadata"]["name"]
    becomes(lambda: plugin.reasons(kubeconfig, name, TEAM), ["elsewhere"], "the plugin finds the pod in the worker")


def test_a_job_waits_while_the_worker_cluster_has_no_quota(clusters: Clusters) -> None:
    submit(clusters.worker, TEAM, job("local", QUEUE, GPUS))
    await_running(clusters.worker, TEAM, "local")
    submit(clusters.manager, TEAM, job("train", QUEUE, 1))
    becomes(lambda: clusters.why("train")["reason"], "dispatch", "the Job waits for a worker cluster")
    assert clusters.why("train")["text"] == f"offered to {NEAR}"
    clusters.worker.delete(jobs(TEAM, "local"))
    await_running(clusters.worker, TEAM, "train")


def test_a_worker_cluster_that_cannot_be_reached_is_visible(clusters: Clusters) -> None:
    manager, page = clusters.manager, KueueMetrics(clusters.manager.cluster)
    becomes(lambda: clusters.active(GONE), ("False", "ClientConnectionFailed"), "the other cluster is not connected")

    def retries() -> float:
        name, wanted = "controller_runtime_reconcile_total", {"controller": "multikueue_cluster"}
        found = [each for each in page.samples() if each.name == name and wanted.items() <= each.labels.items()]
        return sum(each.value for each in found if each.labels["result"] in ("error", "requeue_after"))

    before = retries()
    eventually(lambda: retries() > before, "Kueue counts a retry", retries)
    clusters.connect(NEAR, ADDRESS_OF_NOTHING)
    becomes(lambda: clusters.active(NEAR), ("False", "ClientConnectionFailed"), "no cluster is connected")
    submit(manager, TEAM, job("late", QUEUE, 1))
    queue = f"{WORKLOADS}/clusterqueues/gpus"
    becomes(lambda: condition(manager.get(queue), "Active").get("status"), "False", "the ClusterQueue admits no Job")
    becomes(lambda: clusters.why("late")["reason"], "queue", "the Job waits in the queue")
    clusters.connect(NEAR, clusters.worker_address)
    await_running(clusters.worker, TEAM, "late")


def test_a_job_of_a_lost_worker_cluster_is_evicted_and_starts_again(clusters: Clusters) -> None:
    """Kueue replaces the pod as soon as Kueue reaches the worker cluster again."""
    manager, worker = clusters.manager, clusters.worker

    def running() -> list[str]:
        return [pod["metadata"]["uid"] for pod in gpu_pods(worker, TEAM) if pod["status"]["phase"] == "Running"]

    submit(manager, TEAM, job("train", QUEUE, GPUS))
    becomes(lambda: manager.get(jobs(TEAM, "train"))["status"].get("active"), 1, "the manager has the Job's status")
    (first,) = eventually(running, "its pod runs")  # An active pod of a Job may still be pending.
    clusters.connect(NEAR, ADDRESS_OF_NOTHING)
    lost = "Reset to Pending after eviction"
    eventually(lambda: lost in str(clusters.why("train")["more"]), "the manager evicts the Job")
    assert running() == [first]
    clusters.connect(NEAR, clusters.worker_address)
    eventually(lambda: running() not in ([], [first]), "a new pod runs")
    becomes(lambda: clusters.why("train")["reason"], "elsewhere", "the manager knows the cluster")
