"""Tests each kind of work that Kueue queues, with the real Kueue and the real controllers of these kinds.

Nodes and pods are simulated. A stack with all frameworks has one ClusterQueue with two GPUs, for work of team-a and for
Jobs of team-b.
"""

import re
from collections.abc import Iterator

import pytest

from components.monitoring.rules import queues
from tenancy.frameworks import FRAMEWORKS, GATES, FrameworkName
from tenancy.names import GPU, KUEUE_PRIORITY_LABEL
from tenancy.podsets import pod_sets
from tests.support.e2e import apart, controllers, plugin
from tests.support.e2e.kueue_metrics import KueueMetrics
from tests.support.e2e.queueing import HIGH, LOW, NODE, POOL, gpu_pods, gpus_of, job, rolled_out, workloads
from tests.support.e2e.rollout import (
    Object,
    Rollout,
    await_running,
    becomes,
    complete,
    condition,
    eventually,
    job_pods,
    jobs,
    pods,
    submit,
    workload,
)
from tests.support.healthy import ARGS
from tests.support.queued_work import IMAGE, RUNTIME, VERSIONS, Manifest, template, work
from toolchain.cluster import cluster, paths, simulated
from toolchain.cluster.extent import Extent

TEAM, OTHERS = "team-a", "team-b"
QUEUE, DEFAULT = "team-a-gpu", "default"
GPUS = 2
SETTINGS = {
    "frameworks": [str(name) for name in FrameworkName],
    "flavors": {"gpus": {"pool": POOL}},
    "cluster_queues": {"gpus": {"quotas": {"gpus": {GPU: {"nominal": GPUS}}}}},
    "local_queues": {
        QUEUE: {"tenant": TEAM, "cluster_queue": "gpus"},
        "of-team-b": {"tenant": OTHERS, "cluster_queue": "gpus", "name": DEFAULT},
    },
    "workload_priorities": {LOW: {"value": 100}, HIGH: {"value": 1000}},
}
# Kueue keeps the quota of these kinds until their pods are gone. For the other kinds, Kueue gives the quota to the next
# Workload when the deletion of the pods begins. The scheduler then waits until the devices are free.
KEEP_THEIR_QUOTA = {FrameworkName.RAY_CLUSTER, FrameworkName.LEADER_WORKER_SET, FrameworkName.STATEFUL_SET}


RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
NODES_OF_TORCH = {
    "name": "node",
    "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"containers": [{"name": "node", "image": IMAGE}]}}},
    },
}
# The runtime of the TrainJob (manifests/base/runtimes/torch_distributed.yaml of kubeflow/trainer).
TORCH = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": RUNTIME, "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {"spec": {"replicatedJobs": [NODES_OF_TORCH]}},
    },
}


@pytest.fixture(scope="module")
def stack(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollout]:
    """Runs a cluster with all controllers, and rolls a stack with all frameworks out."""
    if lacking := paths.missing(controllers.PROGRAMS):
        pytest.skip(f"{', '.join(lacking)} not installed: make cluster-toolchain")
    if reason := apart.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("stack")
    with (
        cluster.running(tmp_path_factory.mktemp("frameworks"), extent=Extent.SIMULATED) as running,
        controllers.controllers(running),
        rolled_out(running, folder, GPUS, tenants={TEAM: {}, OTHERS: {}}, queues=SETTINGS) as stack,
    ):
        running.api.create(RUNTIMES, TORCH)
        yield stack


@pytest.fixture(autouse=True)
def queue(stack: Rollout) -> Iterator[None]:
    """Deletes all work after the test, and waits until the queues are empty."""
    yield
    linger(stack, None)
    for framework in FrameworkName:
        for found in stack.items(path(framework)):
            stack.delete(path(framework, found["metadata"]["name"]))
    for found in stack.items(jobs(OTHERS)):
        stack.delete(jobs(OTHERS, found["metadata"]["name"]))

    def left() -> list[Object]:
        return [each for team in (TEAM, OTHERS) for each in (*workloads(stack, team), *stack.items(pods(team)))]

    eventually(lambda: not left(), "the queues are empty", left)


def path(framework: FrameworkName, name: str = "") -> str:
    version, resource = VERSIONS[framework], FRAMEWORKS[framework].resource
    group = "/api/v1" if version == "v1" else f"/apis/{version}"
    return f"{group}/namespaces/{TEAM}/{resource}{f'/{name}' if name else ''}"


def reserved(each: Object) -> bool | None:
    """Returns True if the Workload has its quota, and None if Kueue has not decided on the Workload yet."""
    status = condition(each, "QuotaReserved").get("status")
    return None if status is None else status == "True"


def waits(stack: Rollout) -> bool:
    """Returns True if Kueue has decided on a Workload of the team, and all Workloads of the team lack quota."""
    states = {reserved(each) for each in workloads(stack, TEAM)}
    return False in states and True not in states


def running(stack: Rollout) -> list[str]:
    """Returns the nodes of the team's GPU pods that run."""
    found = gpu_pods(stack, TEAM)
    runs = [p for p in found if p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"]]
    return [pod["spec"]["nodeName"] for pod in runs]


def counted(stack: Rollout) -> list[tuple[str, int, int]]:
    """Returns the pod sets of one Workload of the team: name, count and GPUs."""
    sets = workloads(stack, TEAM)[0]["spec"]["podSets"]
    return sorted((each["name"], each["count"], each["count"] * gpus_of(each["template"])) for each in sets)


def linger(stack: Rollout, lingers: str | None) -> None:
    """Lets the team's GPU pods stay after their deletion, or end."""
    for pod in gpu_pods(stack, TEAM):
        patch = {"metadata": {"annotations": {simulated.LINGERS: lingers}}}
        stack.cluster.api.patch(pods(TEAM, pod["metadata"]["name"]), patch)


def of_low_priority(framework: FrameworkName) -> Manifest:
    manifest = work(framework)
    manifest["metadata"]["labels"][KUEUE_PRIORITY_LABEL] = LOW
    return manifest


@pytest.mark.parametrize("framework", FrameworkName, ids=lambda each: FRAMEWORKS[each].kind)
def test_work_waits_is_admitted_is_preempted_and_resumes(stack: Rollout, framework: FrameworkName) -> None:
    manifest, whole = of_low_priority(framework), [NODE] * (1 if framework is FrameworkName.POD else 2)
    submit(stack, OTHERS, job("first", DEFAULT, GPUS))
    await_running(stack, OTHERS, "first")
    answer = stack.create(path(framework), manifest)
    assert answer.refusal is None, answer.refusal
    eventually(lambda: waits(stack), "it waits", lambda: workloads(stack, TEAM))
    expected = sorted((each.name, each.count, each.request(GPU)) for each in pod_sets(manifest, framework))
    assert counted(stack) == expected
    assert gpu_pods(stack, TEAM) == []
    target = f"{FRAMEWORKS[framework].kind.lower()}/work"
    assert plugin.reasons(stack.cluster.kubeconfig, target, TEAM) == ["queue"]

    complete(stack, OTHERS, "first")
    becomes(lambda: running(stack), whole, "it runs")
    linger(stack, "true")
    submit(stack, OTHERS, job("urgent", DEFAULT, GPUS, HIGH))
    becomes(lambda: running(stack), [], "it is preempted")
    assert len(gpu_pods(stack, TEAM)) == len(whole)
    await_the_devices(stack, "urgent", handed_on=framework not in KEEP_THEIR_QUOTA)
    linger(stack, None)
    await_running(stack, OTHERS, "urgent")
    if framework is not FrameworkName.POD:  # nobody creates a single pod again
        eventually(lambda: waits(stack), "it waits again", lambda: workloads(stack, TEAM))
        complete(stack, OTHERS, "urgent")
        becomes(lambda: running(stack), whole, "it runs again")


def await_the_devices(stack: Rollout, name: str, *, handed_on: bool) -> None:
    """Waits until the Job has its quota and its pod waits for devices, or until the Job waits for a preemption."""

    def stands() -> bool:
        found = workload(stack, OTHERS, name)
        if not handed_on:
            return reserved(found) is False and "preempt" in condition(found, "QuotaReserved")["message"]
        unscheduled = [condition(pod, "PodScheduled").get("status") for pod in job_pods(stack, OTHERS, name)]
        return reserved(found) is True and unscheduled == ["False"]

    eventually(stands, f"{name} waits", lambda: (workload(stack, OTHERS, name), job_pods(stack, OTHERS, name)))


def test_work_without_a_queue_waits_or_uses_the_queue_named_default(stack: Rollout) -> None:
    plain = {"spec": {"template": template(1, restartPolicy="Never")}}
    for team in (TEAM, OTHERS):
        submit(stack, team, {**plain, "metadata": {"name": "plain"}})
    await_running(stack, OTHERS, "plain")
    eventually(lambda: workload(stack, TEAM, "plain"), "Kueue has a Workload for the Job")
    assert not reserved(workload(stack, TEAM, "plain"))
    assert stack.get(jobs(TEAM, "plain"))["spec"]["suspend"]


def test_a_gpu_pod_beside_the_queue_waits_at_kueues_gate_or_is_denied(stack: Rollout) -> None:
    """Kueue does not gate a pod that belongs to a queued object. Anybody can name such an object as a pod's owner."""
    bare = {**template(1), "metadata": {"name": "bare"}}
    gated = stack.create(f"{pods(TEAM)}?dryRun=All", bare)
    assert {"name": GATES[0]} in gated.body["spec"]["schedulingGates"], gated
    made = stack.create(path(FrameworkName.RAY_CLUSTER), of_low_priority(FrameworkName.RAY_CLUSTER)).body
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "work", "uid": made["metadata"]["uid"]}
    owned = {**bare, "metadata": {"name": "bare", "ownerReferences": [{**owner, "controller": True}]}}
    denied = stack.create(f"{pods(TEAM)}?dryRun=All", owned)
    assert "GPUs of this namespace are handed out by its queue" in (denied.refusal or ""), denied


def read_metrics() -> dict[str, set[str]]:
    """Returns the metrics of Kueue that the alerts read, each with the labels that they read."""
    found: dict[str, set[str]] = {}
    for alert in queues.rules(ARGS):
        for metric, selector in re.findall(r"(kueue_[a-z_]+)(?:\{([^}]*)\})?", alert.expression):
            found.setdefault(metric, set()).update(re.findall(r"(\w+)[!=]", selector))
        for labels, metric in re.findall(r"by \(([^)]*)\) \((kueue_[a-z_]+)", alert.expression):
            found[metric].update(labels.split(", "))
    return found


def test_kueue_has_the_metrics_and_labels_that_the_alerts_read(stack: Rollout) -> None:
    page, wanted = KueueMetrics(stack.cluster), read_metrics()
    assert len(wanted) == 8, wanted
    submit(stack, OTHERS, job("counted", DEFAULT, GPUS))
    await_running(stack, OTHERS, "counted")
    submit(stack, OTHERS, job("pending", DEFAULT, GPUS))

    def lacking() -> dict[str, set[str]]:
        there = {sample.name: {"the metric itself", *sample.labels} for sample in page.samples()}
        read = {name: {"the metric itself", *labels} for name, labels in wanted.items()}
        return {name: found for name, labels in read.items() if (found := labels - there.get(name, set()))}

    becomes(lacking, {}, "Kueue has all metrics and labels")
