"""Kills the agents' pods at random times. The next run must complete all work."""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import partial
from typing import Any

import pytest

from tenancy import names
from tests.support import search
from tests.support.e2e.agents import ended, give, pod_of, pods_of, rollout_jobs, run_once, succeeds, without_runs
from tests.support.e2e.processes import end_by_sigterm
from tests.support.e2e.rollout import AGENTS, GPU_COUNT, GPUMEM, SYSTEM, Object, Rollout, cron_job, jobs, pods
from tests.support.waiting import eventually
from toolchain.cluster.api import JSON_PATCH

NODE = "/api/v1/nodes/k8s-node1"
WHOLE, NOTHING = ("14k", "14k"), (None, None)
DEAD = "dead"  # A node without a kubelet. kwok does not simulate this node.
KILLS = 4
STOPPED = 143
LONGEST_RUN_SECONDS = 4.0  # The seconds from the creation of the Job to its end.


@pytest.fixture(scope="module")
def prod(stack: Rollout) -> Rollout:
    stack.settle(runs=AGENTS)
    return stack


@pytest.fixture
def nobody_else_reconciles(prod: Rollout) -> Iterator[Rollout]:
    with without_runs(prod, names.RECONCILE):
        yield prod


def shown(prod: Rollout) -> set[tuple[str | None, str | None]]:
    status = prod.get(NODE)["status"]
    return {(status[field].get(GPUMEM), status[field].get(GPU_COUNT)) for field in ("capacity", "allocatable")}


def kill_reconcile(prod: Rollout) -> None:
    with suppress(ProcessLookupError):
        os.kill(prod.cluster.pid_on_node("reconcile"), signal.SIGKILL)
        return
    for name in pods_of(prod, names.RECONCILE):
        delete_at_once(prod, name)


def delete_at_once(prod: Rollout, pod: str) -> None:
    prod.cluster.api.request("DELETE", f"{pods(SYSTEM, pod)}?gracePeriodSeconds=0")


@pytest.mark.search
def test_a_reconcile_that_is_killed_anywhere_leaves_a_node_as_it_was_or_whole(
    nobody_else_reconciles: Rollout,
) -> None:
    prod, moment = nobody_else_reconciles, search.dice("moments of a kill")
    without = {"status": {field: {GPUMEM: None, GPU_COUNT: None} for field in ("capacity", "allocatable")}}
    for number in range(KILLS):
        prod.cluster.api.patch(f"{NODE}/status", without)
        run = run_once(prod, names.RECONCILE)
        time.sleep(moment.uniform(0, LONGEST_RUN_SECONDS))
        kill_reconcile(prod)
        eventually(lambda n=run: ended(prod, n), f"{run} has ended")
        assert shown(prod) in ({WHOLE}, {NOTHING}), f"kill {number}"
    succeeds(prod, run_once(prod, names.RECONCILE))
    assert shown(prod) == {WHOLE}


def test_an_up_whose_reconcile_job_loses_its_pod_waits_for_the_next_pod(prod: Rollout) -> None:
    for mib in (5100, 5110, 5120):
        done = up_with_a_lost_pod(prod, mib)
        if "failed" in done:  # A quick pod may end before the test deletes it.
            break
    assert (done["failed"], done["succeeded"]) == (1, 1)
    assert shown(prod) == {WHOLE}


def up_with_a_lost_pod(prod: Rollout, mib: int) -> Object:
    old = set(rollout_jobs(prod))
    prod.workspace.change(lambda config: config["residents"]["llama-swap"].update(gpumem_mib=mib))
    with ThreadPoolExecutor() as background:
        up = background.submit(prod.up)
        (job,) = eventually(lambda: set(rollout_jobs(prod)) - old, "the rollout's Job is there", pause_seconds=0.2)
        delete_at_once(prod, pod_of(prod, job)["metadata"]["name"])
        up.result()
    status: Object = prod.get(jobs(SYSTEM, job))["status"]
    return status


@pytest.mark.parametrize("agent", [names.WATCHDOG, names.GATE])
def test_the_run_after_a_killed_one_completes(prod: Rollout, agent: str) -> None:
    run = run_once(prod, agent)
    delete_at_once(prod, pod_of(prod, run)["metadata"]["name"])
    eventually(lambda: ended(prod, run), "it has ended")
    succeeds(prod, run_once(prod, agent))


@pytest.mark.parametrize("program", ["reconcile", "watchdog", "gate"])
def test_sigterm_ends_a_run_in_its_container(prod: Rollout, program: str) -> None:
    codes = {0}
    while codes == {0}:
        before = exit_codes(prod, program)
        end_by_sigterm(lambda: prod.cluster.pid_on_node(program, "-I"), program)
        told = partial(fresh_codes, prod, program, before)
        codes = eventually(told, "its container has its exit status", lambda: exit_codes(prod, program))
    assert STOPPED in codes


def fresh_codes(prod: Rollout, program: str, before: Mapping[str, int]) -> set[int]:
    return {code for pod, code in exit_codes(prod, program).items() if pod not in before}


def exit_codes(prod: Rollout, program: str) -> dict[str, int]:
    return {
        pod["metadata"]["name"]: status["state"]["terminated"]["exitCode"]
        for pod in prod.items(pods(SYSTEM))
        for status in pod["status"].get("containerStatuses", ())
        if status["name"] == program and "terminated" in status["state"]
    }


@contextmanager
def runs_on_a_dead_node(prod: Rollout, agents: Collection[str]) -> Iterator[list[str]]:
    declared = {agent: prod.get(cron_job(agent))["spec"]["jobTemplate"]["spec"] for agent in agents}

    def have(agent: str, change: Callable[[dict[str, Any]], object]) -> None:
        job = deepcopy(declared[agent])
        change(job)
        replacement = [{"op": "replace", "path": "/spec/jobTemplate/spec", "value": job}]
        prod.cluster.api.patch(cron_job(agent), replacement, JSON_PATCH)

    def on_a_dead_node(job: dict[str, Any]) -> None:
        job["activeDeadlineSeconds"] = 5
        job["template"]["spec"]["nodeName"] = DEAD

    def bound(agent: str) -> list[Object]:
        found = prod.items(f"{pods(SYSTEM)}?labelSelector={names.LABEL_NAME}%3D{agent}")
        return [pod for pod in found if pod["spec"].get("nodeName") == DEAD]

    prod.cluster.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": DEAD}})
    try:
        for agent in agents:
            have(agent, on_a_dead_node)
        for agent in agents:
            eventually(lambda a=agent: bound(a), f"a run of {agent} is bound to the dead node")
            have(agent, lambda job: give(job["template"]["spec"], RUN_SECONDS="0"))
        held = [pod["metadata"] for agent in agents for pod in bound(agent)]
        for pod in held:
            path = pods(SYSTEM, pod["name"])
            eventually(lambda p=path: prod.get(p)["metadata"].get("deletionTimestamp"), "its deadline has passed")
        yield [pod["labels"]["batch.kubernetes.io/job-name"] for pod in held]
    finally:
        for agent in agents:
            have(agent, lambda job: None)
            for pod in bound(agent):
                delete_at_once(prod, pod["metadata"]["name"])
        prod.delete(f"/api/v1/nodes/{DEAD}")


def test_a_run_on_a_dead_node_delays_no_other_run(prod: Rollout) -> None:
    """A pod on a dead node stays Terminating. Source: delayTerminalCondition in Kubernetes' Job controller."""
    agents = (names.RECONCILE, names.WATCHDOG)

    def last(agent: str) -> str | None:
        succeeded: str | None = prod.get(cron_job(agent))["status"].get("lastSuccessfulTime")
        return succeeded

    with runs_on_a_dead_node(prod, agents) as stuck:
        before = {agent: last(agent) for agent in agents}
        for agent in agents:
            eventually(lambda a=agent: last(a) != before[a], f"a later run of {agent} completes")
        assert not any(ended(prod, job) for job in stuck)
