"""kubectl gpumem on a cluster with prod on it: each verb as it is typed, with the real API server behind kubectl."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tenancy import names
from tests.e2e.plugin import gpumem
from tests.e2e.rollout import (
    GPUMEM,
    SHARED,
    Rollout,
    await_running,
    await_waiting,
    container,
    deployment,
    eventually,
    job,
    jobs,
    pods,
    submit,
)

DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
NODE = "k8s-node1"


def shown(prod: Rollout, *arguments: str) -> dict[str, Any]:
    done = gpumem(prod.cluster.kubeconfig, *arguments, "-o", "json")
    assert done.returncode in (0, 3), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def reasons(prod: Rollout, target: str, namespace: str) -> list[str]:
    return [each["reason"] for each in shown(prod, "why", target, "-n", namespace)["answers"]]


@pytest.fixture(scope="module")
def used(prod: Rollout) -> Iterator[Rollout]:
    """A resident at two replicas, of which its quota has one; a closed gate; a queue's Job behind another."""
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


def test_who_and_free_show_the_resident_as_it_is_bound(used: Rollout) -> None:
    def bound() -> list[dict[str, Any]]:
        return [p for d in devices(shown(used, "who", "--pool", "t4"), NODE) for p in d["pods"]]

    (held,) = eventually(bound, "the resident is bound")
    assert (held["namespace"], held["seat"], held["declared_mib"]) == ("immich", "immich-ml", 3000)
    (pool,) = shown(used, "free", "--pool", "t4")["pools"]
    assert (pool["advertised_mib"], pool["promised_mib"], pool["held_mib"]) == (14000, 13300, 3000)
    (found,) = (each for each in used.items(pods("immich")) if each["metadata"]["uid"] == held["uid"])
    assert found["spec"]["nodeName"] == NODE


def test_who_counts_the_whole_device_that_a_queue_handed_out(used: Rollout) -> None:
    (row,) = shown(used, "who")["whole"]
    assert (row["pool"], row["offered"], row["held"]) == ("batch", 1, 1)


def test_why_says_what_the_api_server_the_gate_and_kueue_say(used: Rollout) -> None:
    eventually(lambda: "quota" in reasons(used, "deployment/immich-ml", "immich"), "the second replica is refused")
    assert reasons(used, "deployment/tts", "tts") == ["gate"]
    (answer,) = shown(used, "why", "job/gpumem-second", "-n", "team-b")["answers"]
    assert (answer["reason"], answer["text"]) == ("queue", "ClusterQueue gpu-cq: 0 of 1 waiting are before it")
    assert gpumem(used.cluster.kubeconfig, "why", "job/gpumem-second", "-n", "team-b").returncode == 3


def test_a_pod_that_fits_no_device_is_told_so_in_the_extenders_words(prod: Rollout) -> None:
    """An administrator's, which admission leaves alone."""
    spec = {
        "schedulerName": names.SCHEDULER_NAME,
        "nodeSelector": SHARED,
        "containers": [container({GPUMEM: "14001"})],
    }
    place = pods(names.EXEMPT_BY_NAME)
    prod.create(place, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "too-large"}, "spec": spec})
    try:
        (answer,) = shown(prod, "why", "too-large", "-n", names.EXEMPT_BY_NAME)["answers"]
        assert (answer["reason"], answer["about"]) == ("too-large", "pod kube-system/too-large")
    finally:
        prod.delete(f"{place}/too-large")


def test_a_tenant_without_rights_is_told_what_he_may_not_read(prod: Rollout) -> None:
    done = gpumem(prod.cluster.kubeconfig, "who", "--as=somebody", "--as-group=team-a")
    assert (done.returncode, done.stdout) == (1, "")
    assert 'User "somebody" cannot get resource "configmaps"' in done.stderr
