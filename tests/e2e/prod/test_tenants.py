"""Tests residents and queue tenants with prod's quotas, policies and queues, and with a real scheduler and a real
Kueue.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tenancy import names
from tests.support.e2e.rollout import (
    GPUMEM,
    Rollout,
    await_running,
    await_waiting,
    becomes,
    condition,
    container,
    eventually,
    job,
    jobs,
    pods,
    submit,
    workload,
)

RESIDENTS = {
    "immich-ml": ("immich", "3000"),
    "llama-swap": ("llama-swap", "5000"),
    "frigate": ("frigate", "2000"),
    "immich-server": ("immich", "1800"),
    "portal-stt": ("portal-stt", "1536"),
}
SHARED = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}


def pod(name: str, limits: Mapping[str, str]) -> dict[str, Any]:
    spec = {"nodeSelector": SHARED, "containers": [container(limits)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def phase(prod: Rollout, namespace: str, name: str) -> str:
    return str(prod.get(pods(namespace, name))["status"].get("phase"))


@pytest.fixture(scope="module")
def residents(prod: Rollout) -> Iterator[Rollout]:
    try:
        for name, (tenant, mib) in RESIDENTS.items():
            answer = prod.create(pods(tenant), pod(name, {GPUMEM: mib, "nvidia.com/gpu": "1"}))
            assert answer.refusal is None, answer.refusal
        for name, (tenant, _) in RESIDENTS.items():
            eventually(lambda n=name, t=tenant: phase(prod, t, n) == "Running", f"{name} runs")
        yield prod
    finally:
        for name, (tenant, _) in RESIDENTS.items():
            prod.delete(pods(tenant, name))
    becomes(lambda: {used(prod, tenant) for tenant, _ in RESIDENTS.values()}, {"0"}, "the quotas are free again")


def used(prod: Rollout, tenant: str) -> str:
    quota = prod.get(f"/api/v1/namespaces/{tenant}/resourcequotas/{names.SEATS}")
    return str(quota["status"]["used"][f"requests.{GPUMEM}"])


def test_the_five_residents_run_on_the_shared_card_under_their_class(residents: Rollout) -> None:
    found = [residents.get(pods(tenant, name)) for name, (tenant, _) in RESIDENTS.items()]
    assert {(pod["spec"]["nodeName"], pod["spec"]["priorityClassName"]) for pod in found} == {
        ("k8s-node1", "gpu-workload")
    }


def test_a_quota_refuses_the_pod_over_its_tenants_budget(residents: Rollout) -> None:
    answer = residents.create(pods("frigate"), pod("second", {GPUMEM: "2000", "nvidia.com/gpu": "1"}))
    assert answer.code == 403
    assert "exceeded quota: gpumem-seats" in str(answer.refusal)
    assert f"requests.{GPUMEM}=2k" in str(answer.refusal)


def test_a_sixth_that_exceeds_the_card_stays_pending_and_the_scheduler_reports_why(residents: Rollout) -> None:
    sixth = pod("sixth", {GPUMEM: "701", "nvidia.com/gpu": "1"})
    assert residents.create(pods("kube-system"), sixth).refusal is None

    def reason() -> str | None:
        return condition(residents.get(pods("kube-system", "sixth")), "PodScheduled").get("message")

    assert f"Insufficient {GPUMEM}" in eventually(reason, "the scheduler judged the sixth")
    residents.delete(pods("kube-system", "sixth"))


def test_a_pod_that_has_nothing_to_do_with_a_gpu_is_left_as_it_is(prod: Rollout) -> None:
    spec = {"containers": [container({})]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "labels": {"a": "b"}}, "spec": spec}
    answer = prod.create(f"{pods('team-a')}?dryRun=All", manifest)
    assert answer.refusal is None, answer.refusal
    stored = answer.body
    assert stored["metadata"]["labels"] == {"a": "b"}
    assert "annotations" not in stored["metadata"]
    assert not {"priorityClassName", "nodeSelector", "schedulingGates", "runtimeClassName"} & stored["spec"].keys()
    assert stored["spec"]["priority"] == 0
    assert "resources" not in stored["spec"]["containers"][0] or not stored["spec"]["containers"][0]["resources"]


@pytest.fixture
def queue(prod: Rollout) -> Iterator[Rollout]:
    empty_queues(prod)
    yield prod
    empty_queues(prod)


def empty_queues(prod: Rollout) -> None:
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


def test_a_job_without_a_queue_is_held_back_until_it_names_one(queue: Rollout) -> None:
    plain = submit(queue, "team-a", job("plain", None))
    eventually(lambda: workload(queue, "team-a", plain), "Kueue has a Workload for the Job")
    assert queue.get(jobs("team-a", plain))["spec"]["suspend"]
    queue.cluster.api.patch(jobs("team-a", plain), {"metadata": {"labels": {names.KUEUE_QUEUE_LABEL: "team-a-gpu"}}})
    await_running(queue, "team-a", plain)


def test_a_team_cannot_use_the_other_teams_queue(queue: Rollout) -> None:
    stolen = submit(queue, "team-a", job("stolen", "team-b-gpu"))
    await_waiting(queue, "team-a", stolen, "LocalQueue team-b-gpu doesn't exist")


def test_a_resource_that_the_queue_does_not_cover_is_named(queue: Rollout) -> None:
    uncovered = submit(queue, "team-a", job("uncovered", "team-a-gpu", resource="example.com/fpga"))
    await_waiting(queue, "team-a", uncovered, "resource example.com/fpga unavailable in ClusterQueue")
