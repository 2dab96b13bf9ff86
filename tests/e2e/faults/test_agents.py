"""Ends the agents' pods and nodes during runs and during an `up`. Later runs complete all work."""

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import pytest

from tenancy import names
from tests.support.e2e.agents import ended, give, pod_of, rollout_jobs
from tests.support.e2e.processes import end_by_sigterm
from tests.support.e2e.rollout import GPU_COUNT, GPUMEM, SYSTEM, Object, Rollout, cron_job, jobs, pods
from tests.support.waiting import eventually
from toolchain.cluster.api import JSON_PATCH

NODE = "/api/v1/nodes/k8s-node1"
WHOLE = ("14k", "14k")
DEAD = "dead"  # A node without a kubelet. kwok does not simulate this node.
STOPPED = 143
ENDED = (names.RECONCILE, names.WATCHDOG)


@pytest.fixture(scope="module")
def prod(stack: Rollout) -> Rollout:
    stack.go_on(runs=ENDED)
    return stack


def shown(prod: Rollout) -> set[tuple[str | None, str | None]]:
    status = prod.get(NODE)["status"]
    return {(status[field].get(GPUMEM), status[field].get(GPU_COUNT)) for field in ("capacity", "allocatable")}


def delete_at_once(prod: Rollout, pod: str) -> None:
    prod.cluster.api.request("DELETE", f"{pods(SYSTEM, pod)}?gracePeriodSeconds=0")


def test_an_up_whose_reconcile_job_loses_its_pod_waits_for_the_next_pod(prod: Rollout) -> None:
    for mib in (4900, 4910, 4920):
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


def test_sigterm_ends_a_run_in_its_container(prod: Rollout) -> None:
    """A program that a container starts as its first process ignores signals without a handler."""
    program, codes = "watchdog", {0}
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

    def last(agent: str) -> str | None:
        succeeded: str | None = prod.get(cron_job(agent))["status"].get("lastSuccessfulTime")
        return succeeded

    with runs_on_a_dead_node(prod, ENDED) as stuck:
        before = {agent: last(agent) for agent in ENDED}
        for agent in ENDED:
            eventually(lambda a=agent: last(a) != before[a], f"a later run of {agent} completes")
        assert not any(ended(prod, job) for job in stuck)
