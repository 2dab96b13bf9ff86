"""Runs agents by Jobs that it creates from their CronJobs, as `kubectl create job --from` does, or suspends agents."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tenancy import names
from tests.support.e2e.rollout import (
    PATIENCE_SECONDS,
    SYSTEM,
    Object,
    Rollout,
    condition,
    eventually,
    job_pods,
    jobs,
    pods,
)


def run_once(prod: Rollout, agent: str) -> str:
    """Creates a Job that runs one pass of the agent in a real container. Returns the Job's name."""
    return start(prod, agent, RUN_SECONDS="0")


def start(
    prod: Rollout, agent: str, change: Callable[[dict[str, Any]], object] = lambda pod: None, **environment: str
) -> str:
    """Creates a Job of the agent with these environment variables, and returns its name.

    `change` may edit the pod's spec.
    """
    template = prod.get(f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/{agent}")["spec"]["jobTemplate"]
    pod = template["spec"]["template"]["spec"]
    give(pod, **environment)
    change(pod)
    spec = {**template["spec"], "activeDeadlineSeconds": PATIENCE_SECONDS}  # a busy machine needs a long deadline
    metadata = {"generateName": f"{agent}-by-hand-", "labels": template["metadata"]["labels"]}
    answer = prod.create(jobs(SYSTEM), {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    assert answer.refusal is None, answer.refusal
    return str(answer.body["metadata"]["name"])


def give(pod: dict[str, Any], **environment: str) -> None:
    """Sets these environment variables in the agent's container."""
    (container,) = pod["containers"]
    kept = [variable for variable in container["env"] if variable["name"] not in environment]
    container["env"] = [*kept, *({"name": name, "value": value} for name, value in environment.items())]


def ended(prod: Rollout, job: str) -> bool:
    found = prod.get(jobs(SYSTEM, job))
    return bool(condition(found, "Complete") or condition(found, "Failed"))


def succeeded(prod: Rollout, job: str) -> bool:
    """Waits until the Job ends, and returns True if the Job succeeded."""
    eventually(lambda: ended(prod, job), f"{job} has ended")
    return bool(condition(prod.get(jobs(SYSTEM, job)), "Complete"))


def succeeds(prod: Rollout, name: str) -> None:
    """Waits until the Job succeeds. Raises ClusterError if the Job does not succeed in time."""
    eventually(lambda: condition(prod.get(jobs(SYSTEM, name)), "Complete"), f"{name} succeeds")


@contextmanager
def without_runs(prod: Rollout, agent: str) -> Iterator[None]:
    """Suspends the agent's CronJob during the block, and waits until no run is active."""
    cron_job = f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/{agent}"

    def suspend(suspended: bool) -> None:
        prod.cluster.api.patch(cron_job, {"spec": {"suspend": suspended}})

    suspend(True)
    try:
        for run in prod.get(cron_job)["status"].get("active", []):
            prod.delete(jobs(SYSTEM, run["name"]))
        eventually(lambda: not pods_of(prod, agent), "no run is under way")
        yield
    finally:
        suspend(False)


def forget_nodes(prod: Rollout) -> None:
    """Deletes reconcile's journal and runs reconcile once.

    With the journal, reconcile would wait before it acts on nodes with new labels.
    """
    with without_runs(prod, names.RECONCILE):
        prod.cluster.api.patch(
            f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.journal(names.RECONCILE)}", {"data": None}
        )
        succeeds(prod, run_once(prod, names.RECONCILE))


def pods_of(prod: Rollout, agent: str) -> list[str]:
    """Returns the names of the agent's pods that have not ended."""
    found = prod.items(f"{pods(SYSTEM)}?labelSelector={names.LABEL_NAME}%3D{agent}")
    return [item["metadata"]["name"] for item in found if item["status"].get("phase") not in ("Succeeded", "Failed")]


def pod_of(prod: Rollout, job: str) -> Object:
    """Waits for the Job's first pod and returns it."""
    found: Object = eventually(lambda: job_pods(prod, SYSTEM, job), f"{job} has a pod", pause_seconds=0.2)[0]
    return found


def log_of(prod: Rollout, job: str) -> Iterator[Object]:
    """Yields the log of the Job's container, line by line."""
    path = pods(SYSTEM, pod_of(prod, job)["metadata"]["name"])
    said = prod.get(f"{path}/log?container={pod_of(prod, job)['spec']['containers'][0]['name']}")["message"]
    for line in str(said).splitlines():
        yield json.loads(line)
