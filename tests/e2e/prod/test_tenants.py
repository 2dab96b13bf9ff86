"""Residents and queue tenants under prod's quotas, admission policies and queues, with the real scheduler and Kueue."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tenancy import names
from tests.e2e.rollout import (
    GPUMEM,
    Rollout,
    await_running,
    await_waiting,
    becomes,
    complete,
    condition,
    container,
    eventually,
    job,
    jobs,
    pods,
    running_pods,
    submit,
    workload,
)
from toolchain.cluster.api import MERGE

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
    """What of the tenant's budget its quota counts as used."""
    quota = prod.get(f"/api/v1/namespaces/{tenant}/resourcequotas/{names.SEATS}")
    return str(quota["status"]["used"][f"requests.{GPUMEM}"])


def test_the_five_residents_run_on_the_shared_card_under_their_class(residents: Rollout) -> None:
    found = [residents.get(pods(tenant, name)) for name, (tenant, _) in RESIDENTS.items()]
    assert {(pod["spec"]["nodeName"], pod["spec"]["priorityClassName"]) for pod in found} == {
        ("k8s-node1", "gpu-workload")
    }


def test_the_api_writes_thousands_as_k(residents: Rollout) -> None:
    swap = residents.get(pods("llama-swap", "llama-swap"))
    assert swap["spec"]["containers"][0]["resources"]["requests"][GPUMEM] == "5k"


def test_a_quota_refuses_the_pod_over_its_tenants_budget(residents: Rollout) -> None:
    answer = residents.create(pods("frigate"), pod("second", {GPUMEM: "2000", "nvidia.com/gpu": "1"}))
    assert answer.code == 403
    assert "exceeded quota: gpumem-seats" in str(answer.refusal)
    assert f"requests.{GPUMEM}=2k" in str(answer.refusal)


def test_a_sixth_that_exceeds_the_card_stays_pending_and_the_scheduler_says_why(residents: Rollout) -> None:
    """In a namespace that is exempt, so that only the card is in its way."""
    sixth = pod("sixth", {GPUMEM: "701", "nvidia.com/gpu": "1"})
    assert residents.create(pods("kube-system"), sixth).refusal is None

    def reason() -> str | None:
        return condition(residents.get(pods("kube-system", "sixth")), "PodScheduled").get("message")

    assert f"Insufficient {GPUMEM}" in eventually(reason, "the scheduler judged the sixth")
    residents.delete(pods("kube-system", "sixth"))


def test_a_quota_is_nothing_to_a_namespace_that_is_nobodys_so_admission_refuses_it(residents: Rollout) -> None:
    answer = residents.create(pods("default"), pod("sixth", {GPUMEM: "701", "nvidia.com/gpu": "1"}))
    assert "this namespace is no tenant's" in str(answer.refusal)


def test_tts_gets_the_class_that_is_evicted_first(residents: Rollout) -> None:
    """It has no seat; its turn on the shared card is all that it asks for."""
    assert residents.create(pods("tts"), pod("voice", {"nvidia.com/gpu": "1"})).refusal is None
    becomes(lambda: phase(residents, "tts", "voice"), "Running", "tts runs")
    spec = residents.get(pods("tts", "voice"))["spec"]
    assert (spec["nodeName"], spec["priorityClassName"], spec["priority"]) == ("k8s-node1", "tier-2-gpu", 600000)
    residents.delete(pods("tts", "voice"))


@pytest.mark.parametrize("namespace", ["default", "immich", "team-a"])
def test_a_pod_that_has_nothing_to_do_with_a_gpu_is_left_as_it_is(residents: Rollout, namespace: str) -> None:
    spec = {"containers": [container({})]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "labels": {"a": "b"}}, "spec": spec}
    answer = residents.create(f"{pods(namespace)}?dryRun=All", manifest)
    assert answer.refusal is None, answer.refusal
    stored = answer.body
    assert stored["metadata"]["labels"] == {"a": "b"}
    assert "annotations" not in stored["metadata"]
    assert not {"priorityClassName", "nodeSelector", "schedulingGates", "runtimeClassName"} & stored["spec"].keys()
    assert stored["spec"]["priority"] == 0
    assert "resources" not in stored["spec"]["containers"][0] or not stored["spec"]["containers"][0]["resources"]


@pytest.fixture
def queue(prod: Rollout) -> Iterator[Rollout]:
    """Prod with empty queues before and after."""
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


def test_a_tenant_gets_no_gpu_past_its_queue(queue: Rollout) -> None:
    for kind, manifest in (
        (pods, pod("bare", {"nvidia.com/gpu": "1"})),
        (jobs, unlabelled(job("plain", "team-a-gpu"))),
    ):
        assert "handed out by its queue" in str(queue.create(kind("team-a"), manifest).refusal)
    submit(queue, "team-b", job("holds", "team-b-gpu"))
    await_running(queue, "team-b", "holds")
    submit(queue, "team-a", job("waits", "team-a-gpu"))
    await_waiting(queue, "team-a", "waits", "insufficient unused quota for nvidia.com/gpu")
    started = queue.cluster.api.request(
        "PATCH", jobs("team-a", "waits"), {"spec": {"suspend": False}}, content_type=MERGE
    )
    assert "only Kueue starts it" in str(started.refusal)


def unlabelled(manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {"name": manifest["metadata"]["name"]}}


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
