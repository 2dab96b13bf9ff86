"""Tests the settings of queues with a real Kueue. The nodes and pods are simulated.

Each tested setting has its own ClusterQueue. All Jobs belong to one tenant.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tenancy.names import GPU
from tests.support.e2e import plugin
from tests.support.e2e.autoscaler import NOT_FOUND, Autoscaler
from tests.support.e2e.queued_stack import CHOOSERS, CLASS, ELASTIC, LABELS, PARAMETERS, SPOT
from tests.support.e2e.queueing import HOSTNAME, workloads
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
from tests.support.waiting import becomes, eventually

TOLERATIONS = [{**SPOT, "operator": "Equal"}]


@pytest.fixture(autouse=True)
def empty(stack: Rollout) -> Iterator[None]:
    yield
    for found in stack.items(jobs(CHOOSERS)):
        stack.delete(jobs(CHOOSERS, found["metadata"]["name"]))

    def left() -> list[Object]:
        return [*workloads(stack, CHOOSERS), *stack.items(pods(CHOOSERS))]

    eventually(lambda: not left(), "the queues are empty", left)


def asks(name: str, queue: str, priority: str = LOW, **pod: Any) -> dict[str, Any]:
    made = job(name, queue, 1, priority)
    requests = pod.pop("requests", {})
    template = made["spec"]["template"]
    template["spec"]["containers"][0]["resources"]["requests"] = requests
    template["spec"].update(pod)
    return made


def nodes_of(stack: Rollout, name: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in job_pods(stack, CHOOSERS, name)]


def admission(stack: Rollout, name: str) -> Object:
    (chosen,) = workload(stack, CHOOSERS, name)["status"]["admission"]["podSetAssignments"]
    return dict(chosen)


def test_a_job_falls_back_to_the_next_flavor_and_needs_a_toleration_of_its_taint(stack: Rollout) -> None:
    submit(stack, CHOOSERS, asks("first", "either"))
    await_running(stack, CHOOSERS, "first")
    assert nodes_of(stack, "first") == ["l4"]
    submit(stack, CHOOSERS, asks("intolerant", "either"))
    await_waiting(stack, CHOOSERS, "intolerant", "untolerated taint")
    submit(stack, CHOOSERS, asks("second", "either", tolerations=TOLERATIONS))
    await_running(stack, CHOOSERS, "second")
    assert (admission(stack, "second")["flavors"], nodes_of(stack, "second")) == ({GPU: "t4"}, ["t4"])


def test_cpu_and_memory_are_counted_in_a_resource_group_of_their_own(stack: Rollout) -> None:
    submit(stack, CHOOSERS, asks("first", "either", requests={"cpu": "900m", "memory": "512Mi"}))
    await_running(stack, CHOOSERS, "first")
    flavors = admission(stack, "first")["flavors"]
    assert flavors == {GPU: "l4", "cpu": "cores", "memory": "cores"}
    submit(stack, CHOOSERS, asks("cores", "either", requests={"cpu": "700m"}, tolerations=TOLERATIONS))
    await_waiting(stack, CHOOSERS, "cores", "insufficient unused quota for cpu in flavor cores")
    submit(stack, CHOOSERS, asks("memory", "either", requests={"memory": "1800Mi"}, tolerations=TOLERATIONS))
    await_waiting(stack, CHOOSERS, "memory", "insufficient unused quota for memory in flavor cores")


def test_a_queue_borrows_quota_of_the_cohort_above_and_preempts_a_job_that_borrows(stack: Rollout) -> None:
    submit(stack, CHOOSERS, asks("first", "borrows"))
    await_running(stack, CHOOSERS, "first")
    assert workload(stack, CHOOSERS, "first")["status"]["admission"]["clusterQueue"] == "borrows"
    submit(stack, CHOOSERS, asks("equal", "borrows-too"))
    await_waiting(stack, CHOOSERS, "equal", "insufficient")
    submit(stack, CHOOSERS, asks("urgent", "borrows-too", HIGH))
    await_running(stack, CHOOSERS, "urgent")
    assert condition(workload(stack, CHOOSERS, "first"), "Preempted")["reason"] == "InCohortReclaimWhileBorrowing"


def state_of_check(stack: Rollout, name: str) -> str:
    (check,) = workload(stack, CHOOSERS, name)["status"]["admissionChecks"]
    return str(check["state"])


def test_a_job_waits_for_a_node_that_the_autoscaler_adds(stack: Rollout) -> None:
    autoscaler = Autoscaler(stack.cluster, CHOOSERS)
    submit(stack, CHOOSERS, asks("train", "grows"))
    request = autoscaler.open_request()
    assert (request["spec"]["provisioningClassName"], request["spec"]["parameters"]) == (CLASS, PARAMETERS)
    (pod_set,) = request["spec"]["podSets"]
    template = stack.get(f"/api/v1/namespaces/{CHOOSERS}/podtemplates/{pod_set['podTemplateRef']['name']}")["template"]
    assert template["spec"]["nodeSelector"] == {HOSTNAME: ELASTIC}
    assert template["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1"}

    assert (state_of_check(stack, "train"), nodes_of(stack, "train")) == ("Pending", [])
    assert stack.get(jobs(CHOOSERS, "train"))["spec"]["suspend"] is True
    becomes(lambda: plugin.reasons(stack.cluster.kubeconfig, "job/train", CHOOSERS), ["check"], "the plugin says why")
    autoscaler.provide(request, ELASTIC, LABELS, {GPU: "1"})
    await_running(stack, CHOOSERS, "train")
    (pod,) = job_pods(stack, CHOOSERS, "train")
    assert pod["spec"]["nodeName"] == ELASTIC
    called = pod["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"]
    assert called == request["metadata"]["name"]


def test_a_job_whose_nodes_are_refused_is_tried_again_and_then_given_up(stack: Rollout) -> None:
    autoscaler = Autoscaler(stack.cluster, CHOOSERS)
    submit(stack, CHOOSERS, asks("train", "grows"))
    first = autoscaler.open_request()
    autoscaler.refuse(first)
    eventually(lambda: condition(workload(stack, CHOOSERS, "train"), "Evicted"), "Kueue frees the quota")
    second = autoscaler.open_request()
    assert second["metadata"]["name"] != first["metadata"]["name"]
    autoscaler.refuse(second)
    eventually(lambda: workload(stack, CHOOSERS, "train")["spec"]["active"] is False, "Kueue gives the Job up")
    assert (stack.get(jobs(CHOOSERS, "train"))["spec"]["suspend"], nodes_of(stack, "train")) == (True, [])

    def answer() -> Object:
        return dict(plugin.shown(stack.cluster.kubeconfig, "why", "job/train", "-n", CHOOSERS)["answers"][0])

    becomes(lambda: (answer()["reason"], NOT_FOUND in answer()["text"]), ("deactivated", True), "the plugin says why")
