"""Stops the API server, etcd and Kueue during an `up` and during runs of the agents, and starts them again."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tenancy import names
from tests.support.e2e.agents import run_once, succeeds
from tests.support.e2e.rollout import (
    AGENTS,
    GPUMEM,
    SYSTEM,
    Rollout,
    await_running,
    changes,
    container,
    job,
    jobs,
    pods,
    submit,
)
from tests.support.waiting import becomes, eventually

LEDGER = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"
KUEUE = "/apis/apps/v1/namespaces/kueue-system/deployments/kueue-controller-manager"
CLUSTER_QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/gpu-cq"
NEWER_TOO = "LowerOrNewerEqualPriority"
GUESTS = [f"guest-{number}" for number in range(10)]
ETCD_PAUSE_SECONDS = 12  # The pause is longer than an agent waits for a response.


def seats(prod: Rollout, tenant: str) -> str:
    hard = prod.get(f"/api/v1/namespaces/{tenant}/resourcequotas/{names.SEATS}")["spec"]["hard"]
    return str(hard[f"requests.{GPUMEM}"])


def within_the_queue(prod: Rollout) -> str:
    return str(prod.get(CLUSTER_QUEUE)["spec"]["preemption"]["withinClusterQueue"])


def test_an_up_amid_which_the_api_server_restarts_ends_and_names_its_address_if_it_fails(prod: Rollout) -> None:
    """It fails if the provider asks while there is no API server, and goes on if it happens to ask before and after.

    The next test completes it in both cases.
    """

    def change(config: Any) -> None:
        config["tenants"].update({name: {} for name in GUESTS})
        config["residents"]["llama-swap"].update(gpumem_mib=5200)

    prod.workspace.change(change)
    with ThreadPoolExecutor() as background:
        up = background.submit(prod.attempt_up)
        first = f"/api/v1/namespaces/{GUESTS[0]}"
        eventually(lambda: prod.cluster.api.get(first), "the first of the new objects", pause_seconds=0.2)
        prod.cluster.restart("kube-apiserver")
        interrupted = up.result()
    address = prod.cluster.api.server.removeprefix("https://")
    assert interrupted.code == 0 or address in interrupted.text, interrupted.text
    becomes(lambda: prod.cluster.api.request("GET", "/readyz").code, 200, "the API server is back")


@contextmanager
def without_kueue(prod: Rollout) -> Iterator[None]:
    def refused() -> bool:
        return prod.create(f"{jobs('team-a')}?dryRun=All", job("asks", "team-a-gpu")).refusal is not None

    def scale(replicas: int) -> None:
        prod.cluster.api.patch(KUEUE, {"spec": {"replicas": replicas}})

    scale(0)
    try:
        eventually(refused, "Kueue is down")
        yield
    finally:
        scale(1)
        eventually(lambda: not refused(), "Kueue answers again")


def test_without_kueue_its_jobs_and_queues_are_refused_and_all_others_go_on(prod: Rollout) -> None:
    """The next `up` completes the `up` of the test before."""
    resident = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "seat"},
        "spec": {"containers": [container({GPUMEM: "2000"})]},
    }

    def change_preemption(config: Any) -> None:
        config["queues"]["cluster_queues"]["gpu-cq"]["preemption"]["within_cluster_queue"] = NEWER_TOO

    with without_kueue(prod):
        answer = prod.create(jobs("team-a"), job("queued", "team-a-gpu"))
        assert answer.code == 500
        assert 'failed calling webhook "mjob.kb.io"' in str(answer.refusal)
        assert "https://kueue-webhook-service.kueue-system.svc:" in str(answer.refusal)
        await_running(prod, "default", submit(prod, "default", job("plain", None)))
        assert prod.create(pods("frigate"), resident).refusal is None
        becomes(lambda: prod.get(pods("frigate", "seat"))["status"].get("phase"), "Running", "a resident runs")
        for agent in AGENTS:
            succeeds(prod, run_once(prod, agent))
        prod.up()
        prod.expect_no_changes()
        assert seats(prod, "llama-swap") == "5200"
        assert all(prod.cluster.api.get(f"/api/v1/namespaces/{name}") for name in GUESTS)
        prod.workspace.change(change_preemption)
        refused = prod.attempt_up()
        assert refused.code != 0
        assert 'failed calling webhook "vclusterqueue.kb.io"' in refused.text, refused.text
    await_running(prod, "team-a", submit(prod, "team-a", job("queued", "team-a-gpu")))
    for path in (jobs("default", "plain"), jobs("team-a", "queued"), pods("frigate", "seat")):
        prod.delete(path)


def test_an_up_and_the_agents_outlast_an_etcd_that_stalls(prod: Rollout) -> None:
    """The stall begins after the `up` has also applied what Kueue's absence had refused, because Kueue loses its lease
    in a stall.
    """

    def change(config: Any) -> None:
        for name in GUESTS:
            config["tenants"].pop(name, None)
        config["residents"]["llama-swap"].update(gpumem_mib=5000)

    before, etcd = prod.get(LEDGER)["data"], prod.cluster.pid_of("etcd")
    prod.workspace.change(change)
    with ThreadPoolExecutor() as background:
        up = background.submit(prod.up)
        becomes(lambda: within_the_queue(prod), NEWER_TOO, "the refused change is applied")
        eventually(lambda: prod.get(LEDGER)["data"] != before, "the ledger is the new one")
        runs = [run_once(prod, agent) for agent in AGENTS]
        os.kill(etcd, signal.SIGSTOP)
        try:
            time.sleep(ETCD_PAUSE_SECONDS)
        finally:
            os.kill(etcd, signal.SIGCONT)
        assert changes(up.result())["replaced"] == 1
    for run in runs:
        succeeds(prod, run)
    assert seats(prod, "llama-swap") == "5k"
    assert prod.capacity("k8s-node1")[GPUMEM] == "14k"
