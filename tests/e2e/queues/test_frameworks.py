"""Tests each kind of work that Kueue queues. Kueue and the controllers are real, but nodes and pods are simulated."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

import pytest

from agents.kube.client import Api
from agents.kube.transport import Endpoint
from agents.runtime.clock import Clock
from agents.runtime.items import ItemProblems
from agents.runtime.log import Log
from agents.watchdog.evict import EvictionOutcome, recycle
from agents.watchdog.pods import GpuPod, read_pods
from agents.watchdog.types import RecycleTarget
from components.agents.watchdog import WatchdogArgs, WatchdogSpec, watchdog_agent
from components.base.identity import binding, role, service_account
from components.monitoring.rules import queues
from tenancy.frameworks import FRAMEWORKS, GATES, FrameworkName
from tenancy.ledger import Ledger
from tenancy.names import GPU, KUEUE_PRIORITY_LABEL, KUEUE_QUEUE_LABEL, KUEUE_WORKLOAD_ANNOTATION
from tenancy.podsets import pod_sets
from tests.support.e2e import plugin
from tests.support.e2e.kueue_metrics import KueueMetrics
from tests.support.e2e.queued_stack import DEFAULT, OTHERS, QUEUE, TEAM
from tests.support.e2e.queueing import GPUS, NODE, WORKLOADS, gpu_pods, gpus_of, workloads
from tests.support.e2e.rollout import (
    HIGH,
    LOW,
    Object,
    Rollout,
    await_running,
    complete,
    condition,
    job,
    job_pods,
    jobs,
    pods,
    quotas_in_use,
    submit,
    workload,
)
from tests.support.given import CLUSTER, CODE
from tests.support.healthy import ARGS
from tests.support.queued_work import IMAGE, RUNTIME, Manifest, path, template, work
from tests.support.waiting import becomes, eventually
from toolchain.cluster import simulated
from toolchain.cluster.api import MERGE, NOT_FOUND, ApiAnswer

# For these kinds, Kueue frees the quota only after the pods have ended. For all other kinds, Kueue frees the quota when
# the deletion begins.
KEEP_THEIR_QUOTA = {FrameworkName.RAY_CLUSTER, FrameworkName.LEADER_WORKER_SET, FrameworkName.STATEFUL_SET}


RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
NODES_OF_TORCH = {
    "name": "node",
    "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"containers": [{"name": "node", "image": IMAGE}]}}},
    },
}
# Source: manifests/base/runtimes/torch_distributed.yaml of kubeflow/trainer.
TORCH = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": RUNTIME, "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {"spec": {"replicatedJobs": [NODES_OF_TORCH]}},
    },
}


@pytest.fixture(scope="module", autouse=True)
def runtime(stack: Rollout) -> None:
    stack.cluster.api.create(RUNTIMES, TORCH)


@pytest.fixture(autouse=True)
def queue(stack: Rollout) -> Iterator[None]:
    yield
    linger(stack, None)
    for framework in FrameworkName:
        for found in stack.items(path(framework)):
            stack.delete(path(framework, found["metadata"]["name"]))
    for found in stack.items(jobs(OTHERS)):
        stack.delete(jobs(OTHERS, found["metadata"]["name"]))

    def left() -> list[Object]:
        found = [(*workloads(stack, team), *stack.items(pods(team))) for team in (TEAM, OTHERS)]
        return [*chain.from_iterable(found), *quotas_in_use(stack, TEAM), *quotas_in_use(stack, OTHERS)]

    eventually(lambda: not left(), "the queues are empty", left)


def reserved(each: Object) -> bool | None:
    status = condition(each, "QuotaReserved").get("status")
    return None if status is None else status == "True"


def waits(stack: Rollout) -> bool:
    states = {reserved(each) for each in workloads(stack, TEAM)}
    return False in states and True not in states


def running(stack: Rollout) -> list[str]:
    found = gpu_pods(stack, TEAM)
    runs = [p for p in found if p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"]]
    return [pod["spec"]["nodeName"] for pod in runs]


def counted(stack: Rollout) -> list[tuple[str, int, int]]:
    sets = workloads(stack, TEAM)[0]["spec"]["podSets"]
    return sorted((each["name"], each["count"], each["count"] * gpus_of(each["template"])) for each in sets)


def linger(stack: Rollout, lingers: str | None) -> None:
    for pod in gpu_pods(stack, TEAM):
        patch = {"metadata": {"annotations": {simulated.LINGERS: lingers}}}
        stack.cluster.api.request("PATCH", pods(TEAM, pod["metadata"]["name"]), patch, content_type=MERGE)


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
    becomes(lambda: plugin.reasons(stack.cluster.kubeconfig, target, TEAM), ["queue"], "the plugin says why")

    complete(stack, OTHERS, "first")
    becomes(lambda: running(stack), whole, "it runs")
    linger(stack, "true")
    submit(stack, OTHERS, job("urgent", DEFAULT, GPUS, HIGH))
    becomes(lambda: running(stack), [], "it is preempted")
    assert len(gpu_pods(stack, TEAM)) == len(whole)
    await_the_devices(stack, "urgent", handed_on=framework not in KEEP_THEIR_QUOTA)
    linger(stack, None)
    await_running(stack, OTHERS, "urgent")
    if framework is not FrameworkName.POD:
        eventually(lambda: waits(stack), "it waits again", lambda: workloads(stack, TEAM))
        complete(stack, OTHERS, "urgent")
        becomes(lambda: running(stack), whole, "it runs again")


def await_the_devices(stack: Rollout, name: str, *, handed_on: bool) -> None:
    def stands() -> bool:
        found = workload(stack, OTHERS, name)
        if not handed_on:
            return reserved(found) is False and "preempt" in condition(found, "QuotaReserved")["message"]
        unscheduled = [condition(pod, "PodScheduled").get("status") for pod in job_pods(stack, OTHERS, name)]
        return reserved(found) is True and unscheduled == ["False"]

    eventually(stands, f"{name} waits", lambda: (workload(stack, OTHERS, name), job_pods(stack, OTHERS, name)))


@dataclass(frozen=True)
class Listed:
    found: Sequence[Object]

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        yield from self.found


@pytest.fixture(scope="module")
def watchdog(stack: Rollout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    args = WatchdogArgs(
        spec=WatchdogSpec(armed=True),
        cluster=CLUSTER,
        code=CODE,
        budgeted=[TEAM],
        queued=[TEAM],
        frameworks=tuple(FrameworkName),
    )
    agent, api = watchdog_agent(args), stack.cluster.api
    accounts, rbac = (
        "/api/v1/namespaces/default/serviceaccounts",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}",
    )
    account: dict[str, Any] = {**service_account(agent), "metadata": {"name": agent.name, "namespace": "default"}}
    bound = {**binding(agent, TEAM), "subjects": [{"kind": "ServiceAccount", **account["metadata"]}]}
    api.create(accounts, account)
    api.create(f"{rbac}/roles", role(agent, TEAM))
    api.create(f"{rbac}/rolebindings", bound)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {}}
    token = tmp_path_factory.mktemp("watchdog") / "token"
    token.write_text(api.create(f"{accounts}/{agent.name}/token", request)["status"]["token"])
    server = urlsplit(api.server)
    endpoint = Endpoint(
        host=server.hostname or "", port=server.port or 0, token_file=token, ca_file=stack.cluster.folder.ca
    )
    with closing(Api(endpoint, clock=Clock())) as client:
        yield client


def offender(stack: Rollout) -> GpuPod:
    ledger = Ledger(domain="example.com", pools=(), queue_tenants=(TEAM,))
    listed, problems = Listed(gpu_pods(stack, TEAM)), ItemProblems(log=Log("watchdog", io.StringIO()))
    return next(read_pods(listed, NODE, ledger, problems))  # type: ignore[arg-type]


def recycled(stack: Rollout, api: Api) -> list[EvictionOutcome]:
    def outcomes() -> list[EvictionOutcome]:
        target = RecycleTarget(pods=(offender(stack),), used_mib=2, overshoot_mib=1)
        found = [each.outcome for each in recycle(api, target, longest_grace_seconds=30)]
        return [] if found == [EvictionOutcome.GONE] else found

    return eventually(outcomes, "the Workload has not changed between read and write")


def inactive(stack: Rollout) -> list[str]:
    found = [each["metadata"]["name"] for each in workloads(stack, TEAM) if each["spec"].get("active") is False]
    return [f"{WORKLOADS}/namespaces/{TEAM}/workloads/{name}" for name in found]


def stays_away(stack: Rollout) -> None:
    becomes(lambda: running(stack), [], "it stops")
    for name in ("next", "last"):
        submit(stack, OTHERS, job(name, DEFAULT, GPUS))
        await_running(stack, OTHERS, name)
        complete(stack, OTHERS, name)
        assert running(stack) == []


SERVICES = {FrameworkName.DEPLOYMENT, FrameworkName.STATEFUL_SET}


@pytest.mark.parametrize("framework", sorted(set(FrameworkName) - SERVICES), ids=lambda each: FRAMEWORKS[each].kind)
def test_work_that_the_watchdog_recycles_stays_away_until_it_is_activated(
    stack: Rollout, watchdog: Api, framework: FrameworkName
) -> None:
    whole = [NODE] * (1 if framework is FrameworkName.POD else 2)
    assert stack.create(path(framework), work(framework)).refusal is None
    becomes(lambda: running(stack), whole, "it runs")
    assert recycled(stack, watchdog) == [EvictionOutcome.DEACTIVATED]
    stays_away(stack)
    if framework is not FrameworkName.POD:
        (path_of_workload,) = inactive(stack)
        stack.cluster.api.patch(path_of_workload, {"spec": {"active": True}})
        becomes(lambda: running(stack), whole, "it runs again")


def grouped(name: str) -> Mapping[str, Any]:
    labels = {KUEUE_QUEUE_LABEL: QUEUE, "kueue.x-k8s.io/pod-group-name": "group"}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    return {**template(1), "metadata": {"name": name, "labels": labels, "annotations": annotations}}


def test_a_pod_group_that_the_watchdog_recycles_stays_away(stack: Rollout, watchdog: Api) -> None:
    for name in ("one", "two"):
        assert stack.create(pods(TEAM), grouped(name)).refusal is None
    becomes(lambda: running(stack), [NODE] * 2, "it runs")
    assert recycled(stack, watchdog) == [EvictionOutcome.DEACTIVATED]
    becomes(lambda: running(stack), [], "it stops")
    assert all("deletionTimestamp" in pod["metadata"] for pod in gpu_pods(stack, TEAM))
    (path_of_workload,) = inactive(stack)
    stack.delete(path_of_workload)
    becomes(lambda: gpu_pods(stack, TEAM), [], "its pods are gone")
    stays_away(stack)


@pytest.mark.parametrize("framework", sorted(SERVICES), ids=lambda each: FRAMEWORKS[each].kind)
def test_a_recycled_pod_of_a_service_comes_back_and_the_others_stay(
    stack: Rollout, watchdog: Api, framework: FrameworkName
) -> None:
    assert stack.create(path(framework), work(framework)).refusal is None
    becomes(lambda: running(stack), [NODE] * 2, "it runs")
    uid, before = offender(stack).uid, {pod["metadata"]["uid"] for pod in gpu_pods(stack, TEAM)}
    assert recycled(stack, watchdog) == [EvictionOutcome.EVICTED]
    eventually(lambda: uid not in uids(stack) and len(running(stack)) == 2, "it has a new pod", lambda: uids(stack))
    assert len(before & uids(stack)) == 1
    assert inactive(stack) == []


def uids(stack: Rollout) -> set[str]:
    return {pod["metadata"]["uid"] for pod in gpu_pods(stack, TEAM)}


def test_a_pod_that_names_a_foreign_workload_is_evicted(stack: Rollout, watchdog: Api) -> None:
    assert stack.create(path(FrameworkName.JOBSET), work(FrameworkName.JOBSET)).refusal is None
    becomes(lambda: running(stack), [NODE] * 2, "it runs")
    other = work(FrameworkName.JOB, name="other")
    assert stack.create(path(FrameworkName.JOB), other).refusal is None
    eventually(lambda: workload(stack, TEAM, "other"), "the other Job has a Workload")
    annotation = {KUEUE_WORKLOAD_ANNOTATION: workload(stack, TEAM, "other")["metadata"]["name"]}
    for pod in gpu_pods(stack, TEAM):
        forged = {"metadata": {"annotations": annotation}}
        stack.cluster.api.patch(pods(TEAM, pod["metadata"]["name"]), forged)
    assert recycled(stack, watchdog) == [EvictionOutcome.EVICTED]
    assert inactive(stack) == []


def refusals(stack: Rollout) -> list[str]:
    messages = [str(event.get("message")) for event in stack.items(f"/api/v1/namespaces/{TEAM}/events")]
    return [message for message in messages if "exceeded quota" in message]


def test_pods_that_end_slowly_are_not_replaced_beyond_the_quota(stack: Rollout) -> None:
    """Before the fix, six pods used a queue's only GPU at the same time."""
    before = len(refusals(stack))
    assert stack.create(path(FrameworkName.JOBSET), of_low_priority(FrameworkName.JOBSET)).refusal is None
    becomes(lambda: running(stack), [NODE] * GPUS, "it runs")
    linger(stack, "true")
    for pod in gpu_pods(stack, TEAM):
        stack.delete(pods(TEAM, pod["metadata"]["name"]))
    eventually(lambda: len(refusals(stack)) > before, "the quota refuses a new pod", lambda: stack.items(pods(TEAM)))
    assert sum(map(gpus_of, stack.items(pods(TEAM)))) == GPUS


def test_a_pod_at_kueues_gate_counts_in_the_quota_of_its_namespace(stack: Rollout) -> None:
    submit(stack, OTHERS, job("first", DEFAULT, GPUS))
    await_running(stack, OTHERS, "first")
    waits = [{**work(FrameworkName.POD), "metadata": {"name": f"waits-{number}"}} for number in range(GPUS + 1)]
    *within, beyond = [stack.create(path(FrameworkName.POD), manifest).refusal for manifest in waits]
    assert within == [None] * GPUS
    assert "exceeded quota" in (beyond or "")


def test_work_without_a_queue_waits_or_uses_the_queue_named_default(stack: Rollout) -> None:
    plain = {"spec": {"template": template(1, restartPolicy="Never")}}
    for team in (TEAM, OTHERS):
        submit(stack, team, {**plain, "metadata": {"name": "plain"}})
    await_running(stack, OTHERS, "plain")
    eventually(lambda: workload(stack, TEAM, "plain"), "Kueue has a Workload for the Job")
    assert not reserved(workload(stack, TEAM, "plain"))
    assert stack.get(jobs(TEAM, "plain"))["spec"]["suspend"]


def test_a_gpu_pod_beside_the_queue_waits_at_kueues_gate_or_is_denied(stack: Rollout) -> None:
    """Any tenant can name a queued object as the owner of a pod."""
    bare = {**template(1), "metadata": {"name": "bare"}}
    gated = stack.create(f"{pods(TEAM)}?dryRun=All", bare)
    assert {"name": GATES[0]} in gated.body["spec"]["schedulingGates"], gated
    made = stack.create(path(FrameworkName.RAY_CLUSTER), of_low_priority(FrameworkName.RAY_CLUSTER)).body
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "work", "uid": made["metadata"]["uid"]}
    owned = {**bare, "metadata": {"name": "bare", "ownerReferences": [{**owner, "controller": True}]}}

    def answer() -> ApiAnswer:
        return stack.create(f"{pods(TEAM)}?dryRun=All", owned)

    def judged() -> ApiAnswer | None:
        found = answer()
        return None if found.code == NOT_FOUND else found

    denied = eventually(judged, "Kueue's webhook has the RayCluster in its cache", answer)
    assert "GPUs of this namespace are handed out by its queue" in (denied.refusal or ""), denied


def read_metrics() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for alert in queues.rules(ARGS):
        for metric, selector in re.findall(r"\b(kueue_[a-z_]+)(?:\{([^}]*)\})?", alert.expression):
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
