"""Tests the settings of queues with a real Kueue. The nodes and pods are simulated.

Each tested setting has its own ClusterQueue. All Jobs belong to team-a.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tenancy.names import GPU
from tests.support.e2e import plugin
from tests.support.e2e.autoscaler import DEFINITION, NOT_FOUND, Autoscaler, define
from tests.support.e2e.queueing import rolled_out, workloads
from tests.support.e2e.rollout import (
    HIGH,
    LOW,
    Object,
    Rollout,
    await_running,
    await_waiting,
    condition,
    job,
    job_pods,
    jobs,
    pods,
    submit,
    workload,
)
from tests.support.prod import raw
from tests.support.waiting import becomes, eventually
from toolchain.cluster import cluster, simulated
from toolchain.cluster.extent import Extent

TEAM = "team-a"
HOSTNAME = "kubernetes.io/hostname"
LABELS = simulated.gpu_labels(sharing="none", replicas=1)
POOLS = ("l4", "t4", "site", "elastic")  # each node has the name of its pool, and one GPU
CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
PARAMETERS = {"ValidUntilSeconds": "600"}
SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
TOLERATIONS = [{**SPOT, "operator": "Equal"}]


def one(pool: str, nominal: int = 1, borrowing: int | None = None) -> dict[str, Any]:
    limit = {} if borrowing is None else {"borrowing_limit": borrowing}
    return {pool: {GPU: {"nominal": nominal, **limit}}}


BORROWS = {
    "cohort": "lab",
    "quotas": one("site", nominal=0, borrowing=1),
    "preemption": {
        "within_cluster_queue": "Never",
        "reclaim_within_cohort": "LowerPriority",
        "borrow_within_cohort": {"policy": "LowerPriority", "max_priority_threshold": 500},
    },
}
# Each ClusterQueue has a LocalQueue of the same name.
NAMESAKES = ("either", "borrows", "borrows-too", "grows")
QUEUES = {
    "flavors": {
        "l4": {"pool": "l4"},
        "t4": {"pool": "t4", "node_taints": [SPOT]},
        "site": {"pool": "site"},
        "elastic": {"pool": "elastic"},
        "cores": {},
    },
    "admission_checks": {
        "autoscaler": {
            "provisioning_class_name": CLASS,
            "parameters": PARAMETERS,
            "managed_resources": [GPU],
            "retry_strategy": {"backoff_limit_count": 1, "backoff_base_seconds": 1, "backoff_max_seconds": 1},
        }
    },
    "cohorts": {"lab": {"parent_name": "whole-site"}, "whole-site": {"quotas": one("site")}},
    "cluster_queues": {
        "either": {
            "quotas": {**one("l4"), **one("t4"), "cores": {"cpu": {"nominal": "1500m"}, "memory": {"nominal": "2Gi"}}},
            "flavor_fungibility": {"when_can_preempt": "TryNextFlavor"},
        },
        "borrows": BORROWS,
        "borrows-too": BORROWS,
        "grows": {"quotas": one("elastic"), "admission_checks": [{"name": "autoscaler", "on_flavors": ["elastic"]}]},
    },
    "local_queues": {name: {"tenant": TEAM, "cluster_queue": name} for name in NAMESAKES},
    "workload_priorities": {LOW: {"value": 100}, HIGH: {"value": 1000}},
}


@pytest.fixture(scope="module")
def stack(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollout]:
    if not DEFINITION.is_file():
        pytest.skip("the kind ProvisioningRequest is not installed: python3 toolchain/install.py oracle")
    pools: dict[str, Any] = {
        name: {"node_selector": {HOSTNAME: name}, "nodes": 1, "device_count": 1, "sharing": "whole"} for name in POOLS
    }
    pools["elastic"]["least_nodes"] = 0
    with cluster.running(tmp_path_factory.mktemp("settings"), extent=Extent.SIMULATED) as running:
        define(running.api)
        for pool in pools.keys() - {"elastic"}:
            running.add_node(pool, labels=LABELS, resources={GPU: "1"})
        with rolled_out(
            running,
            tmp_path_factory.mktemp("stack"),
            0,
            tenants={TEAM: {}},
            pools=pools,
            queues=QUEUES,
            kueue={**raw()["kueue"], "exclude_resource_prefixes": []},
        ) as stack:
            yield stack


@pytest.fixture(autouse=True)
def empty(stack: Rollout) -> Iterator[None]:
    yield
    for found in stack.items(jobs(TEAM)):
        stack.delete(jobs(TEAM, found["metadata"]["name"]))

    def left() -> list[Object]:
        return [*workloads(stack, TEAM), *stack.items(pods(TEAM))]

    eventually(lambda: not left(), "the queues are empty", left)


def asks(name: str, queue: str, priority: str = LOW, **pod: Any) -> dict[str, Any]:
    made = job(name, queue, 1, priority)
    requests = pod.pop("requests", {})
    template = made["spec"]["template"]
    template["spec"]["containers"][0]["resources"]["requests"] = requests
    template["spec"].update(pod)
    return made


def nodes_of(stack: Rollout, name: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in job_pods(stack, TEAM, name)]


def admission(stack: Rollout, name: str) -> Object:
    (chosen,) = workload(stack, TEAM, name)["status"]["admission"]["podSetAssignments"]
    return dict(chosen)


def test_a_job_falls_back_to_the_next_flavor_and_needs_a_toleration_of_its_taint(stack: Rollout) -> None:
    submit(stack, TEAM, asks("first", "either"))
    await_running(stack, TEAM, "first")
    assert nodes_of(stack, "first") == ["l4"]
    submit(stack, TEAM, asks("intolerant", "either"))
    await_waiting(stack, TEAM, "intolerant", "untolerated taint")
    submit(stack, TEAM, asks("second", "either", tolerations=TOLERATIONS))
    await_running(stack, TEAM, "second")
    assert (admission(stack, "second")["flavors"], nodes_of(stack, "second")) == ({GPU: "t4"}, ["t4"])


def test_cpu_and_memory_are_counted_in_a_resource_group_of_their_own(stack: Rollout) -> None:
    submit(stack, TEAM, asks("first", "either", requests={"cpu": "900m", "memory": "512Mi"}))
    await_running(stack, TEAM, "first")
    flavors = admission(stack, "first")["flavors"]
    assert flavors == {GPU: "l4", "cpu": "cores", "memory": "cores"}
    submit(stack, TEAM, asks("cores", "either", requests={"cpu": "700m"}, tolerations=TOLERATIONS))
    await_waiting(stack, TEAM, "cores", "insufficient unused quota for cpu in flavor cores")
    submit(stack, TEAM, asks("memory", "either", requests={"memory": "1800Mi"}, tolerations=TOLERATIONS))
    await_waiting(stack, TEAM, "memory", "insufficient unused quota for memory in flavor cores")


def test_a_queue_borrows_quota_of_the_cohort_above_and_preempts_a_job_that_borrows(stack: Rollout) -> None:
    submit(stack, TEAM, asks("first", "borrows"))
    await_running(stack, TEAM, "first")
    assert workload(stack, TEAM, "first")["status"]["admission"]["clusterQueue"] == "borrows"
    submit(stack, TEAM, asks("equal", "borrows-too"))
    await_waiting(stack, TEAM, "equal", "insufficient")
    submit(stack, TEAM, asks("urgent", "borrows-too", HIGH))
    await_running(stack, TEAM, "urgent")
    assert condition(workload(stack, TEAM, "first"), "Preempted")["reason"] == "InCohortReclaimWhileBorrowing"


def state_of_check(stack: Rollout, name: str) -> str:
    (check,) = workload(stack, TEAM, name)["status"]["admissionChecks"]
    return str(check["state"])


def test_a_job_waits_for_a_node_that_the_autoscaler_adds(stack: Rollout) -> None:
    autoscaler = Autoscaler(stack.cluster, TEAM)
    submit(stack, TEAM, asks("train", "grows"))
    request = autoscaler.open_request()
    assert (request["spec"]["provisioningClassName"], request["spec"]["parameters"]) == (CLASS, PARAMETERS)
    (pod_set,) = request["spec"]["podSets"]
    template = stack.get(f"/api/v1/namespaces/{TEAM}/podtemplates/{pod_set['podTemplateRef']['name']}")["template"]
    assert template["spec"]["nodeSelector"] == {HOSTNAME: "elastic"}
    assert template["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1"}

    assert (state_of_check(stack, "train"), nodes_of(stack, "train")) == ("Pending", [])
    assert stack.get(jobs(TEAM, "train"))["spec"]["suspend"] is True
    becomes(lambda: plugin.reasons(stack.cluster.kubeconfig, "job/train", TEAM), ["check"], "the plugin says why")
    autoscaler.provide(request, "elastic", LABELS, {GPU: "1"})
    await_running(stack, TEAM, "train")
    (pod,) = job_pods(stack, TEAM, "train")
    assert pod["spec"]["nodeName"] == "elastic"
    called = pod["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"]
    assert called == request["metadata"]["name"]


def test_a_job_whose_nodes_are_refused_is_tried_again_and_then_given_up(stack: Rollout) -> None:
    autoscaler = Autoscaler(stack.cluster, TEAM)
    submit(stack, TEAM, asks("train", "grows"))
    first = autoscaler.open_request()
    autoscaler.refuse(first)
    eventually(lambda: condition(workload(stack, TEAM, "train"), "Evicted"), "Kueue frees the quota")
    second = autoscaler.open_request()
    assert second["metadata"]["name"] != first["metadata"]["name"]
    autoscaler.refuse(second)
    eventually(lambda: workload(stack, TEAM, "train")["spec"]["active"] is False, "Kueue gives the Job up")
    assert (stack.get(jobs(TEAM, "train"))["spec"]["suspend"], nodes_of(stack, "train")) == (True, [])

    def answer() -> Object:
        return dict(plugin.shown(stack.cluster.kubeconfig, "why", "job/train", "-n", TEAM)["answers"][0])

    becomes(lambda: (answer()["reason"], NOT_FOUND in answer()["text"]), ("deactivated", True), "the plugin says why")
