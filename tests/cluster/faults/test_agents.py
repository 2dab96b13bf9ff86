"""The agents' pods are killed at moments that nobody chose: nothing is left half done, and the next run completes."""

import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tenancy import names
from tests.cluster.faults.agents import pods_of, run_once, succeeds, without_runs
from tests.cluster.rollout import GPU_COUNT, GPUMEM, SYSTEM, Rollout, condition, eventually, job_pods, jobs, pods

NODE = "/api/v1/nodes/k8s-node1"
WHOLE, NOTHING = ("14k", "1"), (None, None)
SEED, KILLS = 42, 6
LONGEST_RUN_SECONDS = 4.0  # from the Job's creation to the end of a single pass, pod's start included


@pytest.fixture
def nobody_else_reconciles(prod: Rollout) -> Iterator[Rollout]:
    with without_runs(prod, names.RECONCILE):
        yield prod


def shown(prod: Rollout) -> set[tuple[str | None, str | None]]:
    """gpumem and gpu-count, as capacity and as allocatable show them."""
    status = prod.get(NODE)["status"]
    return {(status[field].get(GPUMEM), status[field].get(GPU_COUNT)) for field in ("capacity", "allocatable")}


def kill_reconcile(prod: Rollout) -> None:
    """Its container's process where one runs, else its pod, without any grace."""
    with suppress(ProcessLookupError):
        os.kill(prod.cluster.pid_on_node("reconcile"), signal.SIGKILL)
        return
    for name in pods_of(prod, names.RECONCILE):
        delete_at_once(prod, name)


def delete_at_once(prod: Rollout, pod: str) -> None:
    prod.cluster.api.request("DELETE", f"{pods(SYSTEM, pod)}?gracePeriodSeconds=0")


def pod_of(prod: Rollout, job: str) -> str:
    """The name of the Job's first pod; waits for it."""
    found = eventually(lambda: job_pods(prod, SYSTEM, job), f"{job} has a pod")
    return str(found[0]["metadata"]["name"])


def test_a_reconcile_that_is_killed_anywhere_leaves_a_node_as_it_was_or_whole(
    nobody_else_reconciles: Rollout,
) -> None:
    prod, moment = nobody_else_reconciles, random.Random(SEED)  # noqa: S311 (no secret)
    without = {"status": {field: {GPUMEM: None, GPU_COUNT: None} for field in ("capacity", "allocatable")}}
    for number in range(KILLS):
        prod.cluster.api.patch(f"{NODE}/status", without)
        run = run_once(prod, names.RECONCILE)
        time.sleep(moment.uniform(0, LONGEST_RUN_SECONDS))
        kill_reconcile(prod)
        eventually(lambda n=run: ended(prod, n), f"{run} has ended")
        assert shown(prod) in ({WHOLE}, {NOTHING}), f"kill {number} of seed {SEED}"
    succeeds(prod, run_once(prod, names.RECONCILE))
    assert shown(prod) == {WHOLE}


def ended(prod: Rollout, job: str) -> bool:
    found = prod.get(jobs(SYSTEM, job))
    return bool(condition(found, "Complete") or condition(found, "Failed"))


def test_an_up_whose_reconcile_job_loses_its_pod_waits_for_the_next_pod(prod: Rollout) -> None:
    old = set(rollout_jobs(prod))
    prod.workspace.change(lambda config: config["residents"]["llama-swap"].update(gpumem_mib=5100))
    with ThreadPoolExecutor() as background:
        up = background.submit(prod.up)
        (job,) = eventually(lambda: set(rollout_jobs(prod)) - old, "the rollout's Job is there")
        delete_at_once(prod, pod_of(prod, job))
        up.result()
    done = prod.get(jobs(SYSTEM, job))["status"]
    assert (done["failed"], done["succeeded"]) == (1, 1)
    assert shown(prod) == {WHOLE}


def rollout_jobs(prod: Rollout) -> list[str]:
    """Of reconcile, and no CronJob's nor made by hand."""
    return [
        found["metadata"]["name"]
        for found in prod.items(f"{jobs(SYSTEM)}?labelSelector={names.LABEL_NAME}%3D{names.RECONCILE}")
        if found["metadata"].get("annotations", {}).get(names.REPLACE_UNREADY)
    ]


@pytest.mark.parametrize("agent", [names.WATCHDOG, names.GATE])
def test_the_run_after_a_killed_one_completes(prod: Rollout, agent: str) -> None:
    run = run_once(prod, agent)
    delete_at_once(prod, pod_of(prod, run))
    eventually(lambda: ended(prod, run), "it has ended")
    succeeds(prod, run_once(prod, agent))
