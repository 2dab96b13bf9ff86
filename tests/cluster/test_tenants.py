"""Residents and queue tenants under prod's quotas, admission policies and queues, with the real scheduler and Kueue."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.cluster.rollout import (
    GPUMEM,
    Object,
    Rollout,
    await_running,
    condition,
    container,
    eventually,
    job,
    jobs,
    pods,
    running_pods,
    submit,
)
from toolchain.cluster import simulated

RESIDENTS = {
    "immich-ml": ("immich", "3000"),
    "llama-swap": ("llama-swap", "5000"),
    "frigate": ("frigate", "2000"),
    "immich-server": ("immich", "1800"),
    "portal-stt": ("portal-stt", "1500"),
}
SHARED = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}


def pod(name: str, limits: Mapping[str, str]) -> dict[str, Any]:
    spec = {"nodeSelector": SHARED, "containers": [container(limits)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def phase(prod: Rollout, namespace: str, name: str) -> str:
    return str(prod.get(pods(namespace, name))["status"].get("phase"))


@pytest.fixture(scope="module")
def residents(prod: Rollout) -> Iterator[Rollout]:
    """Prod with its five residents running."""
    for name, (tenant, mib) in RESIDENTS.items():
        answer = prod.create(pods(tenant), pod(name, {GPUMEM: mib, "nvidia.com/gpu": "1"}))
        assert answer.refusal is None, answer.refusal
    for name, (tenant, _) in RESIDENTS.items():
        eventually(lambda n=name, t=tenant: phase(prod, t, n) == "Running", f"{name} runs")
    yield prod
    for name, (tenant, _) in RESIDENTS.items():
        prod.delete(pods(tenant, name))


def test_the_five_residents_run_on_the_shared_card_under_their_class(residents: Rollout) -> None:
    found = [residents.get(pods(tenant, name)) for name, (tenant, _) in RESIDENTS.items()]
    assert {(pod["spec"]["nodeName"], pod["spec"]["priorityClassName"]) for pod in found} == {
        ("k8s-node1", "gpu-workload")
    }


def test_the_api_writes_thousands_as_k(residents: Rollout) -> None:
    swap = residents.get(pods("llama-swap", "llama-swap"))
    assert swap["spec"]["containers"][0]["resources"]["requests"][GPUMEM] == "5k"


def test_a_quota_refuses_the_pod_over_its_tenants_budget(residents: Rollout) -> None:
    answer = residents.create(pods("frigate"), pod("second", {GPUMEM: "1", "nvidia.com/gpu": "1"}))
    assert answer.code == 403
    assert "exceeded quota: gpumem-seats" in str(answer.refusal)
    assert f"requests.{GPUMEM}=2k" in str(answer.refusal)


def test_a_sixth_that_exceeds_the_card_stays_pending_and_the_scheduler_says_why(residents: Rollout) -> None:
    """In a namespace without quota, so that only the card is in its way."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}
    assert residents.create("/api/v1/namespaces", namespace).refusal is None
    account = "/api/v1/namespaces/elsewhere/serviceaccounts/default"
    eventually(lambda: residents.cluster.api.get(account), "elsewhere has an account")
    assert residents.create(pods("elsewhere"), pod("sixth", {GPUMEM: "701", "nvidia.com/gpu": "1"})).refusal is None

    def reason() -> str | None:
        return condition(residents.get(pods("elsewhere", "sixth")), "PodScheduled").get("message")

    assert f"Insufficient {GPUMEM}" in eventually(reason, "the scheduler judged the sixth")
    residents.delete("/api/v1/namespaces/elsewhere")


@pytest.fixture
def queue(prod: Rollout) -> Iterator[Rollout]:
    """Prod with empty queues before and after."""
    yield prod
    for team in ("team-a", "team-b"):
        for found in prod.items(jobs(team)):
            prod.delete(jobs(team, found["metadata"]["name"]))
    eventually(
        lambda: (
            not prod.items("/apis/kueue.x-k8s.io/v1beta2/workloads")
            and not any(prod.items(pods(team)) for team in ("team-a", "team-b"))
        ),
        "the queues are empty",
    )


def workload(prod: Rollout, team: str, name: str) -> Object:
    """The Workload that Kueue keeps for the Job; empty while there is none."""
    found = prod.items(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{team}/workloads")
    return next((item for item in found if item["metadata"]["ownerReferences"][0]["name"] == name), {})


def await_waiting(prod: Rollout, team: str, name: str, why: str) -> None:
    def waits() -> bool:
        reserved = condition(workload(prod, team, name), "QuotaReserved")
        return reserved.get("status") == "False" and why in reserved["message"]

    eventually(waits, f"{name} waits because {why}")
    assert prod.get(jobs(team, name))["spec"]["suspend"] is True
    assert running_pods(prod, team, name) == []


def complete(prod: Rollout, team: str, name: str) -> None:
    for running in running_pods(prod, team, name):
        prod.cluster.api.patch(pods(team, running), {"metadata": {"annotations": {simulated.COMPLETE: "true"}}})
    eventually(lambda: prod.get(jobs(team, name))["status"].get("succeeded") == 1, f"{name} succeeds")


def test_the_second_job_waits_for_the_gpu_and_starts_when_it_is_free(queue: Rollout) -> None:
    first, second = submit(queue, "team-a", job("first", "team-a-gpu")), "second"
    await_running(queue, "team-a", first)
    submit(queue, "team-b", job(second, "team-b-gpu"))
    await_waiting(queue, "team-b", second, "insufficient unused quota for nvidia.com/gpu")
    complete(queue, "team-a", first)
    await_running(queue, "team-b", second)
    (name,) = running_pods(queue, "team-b", second)
    assert queue.get(pods("team-b", name))["spec"]["nodeName"] == "k8s-node2"
    assert "failed" not in queue.get(jobs("team-b", second))["status"]


def test_an_urgent_job_takes_the_gpu_and_the_other_finishes_later(queue: Rollout) -> None:
    low, high = submit(queue, "team-a", job("low", "team-a-gpu")), "high"
    await_running(queue, "team-a", low)
    submit(queue, "team-b", job(high, "team-b-gpu", priority="gpu-urgent"))
    await_running(queue, "team-b", high)
    assert running_pods(queue, "team-a", low) == []
    assert condition(workload(queue, "team-a", low), "Preempted")["status"] == "True"
    complete(queue, "team-b", high)
    await_running(queue, "team-a", low)
    complete(queue, "team-a", low)


def test_a_job_without_a_queue_is_left_alone(queue: Rollout) -> None:
    plain = submit(queue, "team-a", job("plain", None))
    await_running(queue, "team-a", plain)
    assert workload(queue, "team-a", plain) == {}


def test_a_team_cannot_use_the_other_teams_queue(queue: Rollout) -> None:
    stolen = submit(queue, "team-a", job("stolen", "team-b-gpu"))
    await_waiting(queue, "team-a", stolen, "LocalQueue team-b-gpu doesn't exist")


def test_a_resource_that_the_queue_does_not_cover_is_named(queue: Rollout) -> None:
    uncovered = submit(queue, "team-a", job("uncovered", "team-a-gpu", resource="example.com/fpga"))
    await_waiting(queue, "team-a", uncovered, "resource example.com/fpga unavailable in ClusterQueue")
