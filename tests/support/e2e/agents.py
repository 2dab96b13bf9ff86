"""Runs agents as Jobs made from their CronJobs, like `kubectl create job --from`."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tenancy import names
from tests.support.e2e.rollout import SYSTEM, Object, Rollout, condition, cron_job, job_pods, jobs, pods
from tests.support.waiting import PATIENCE_SECONDS, eventually


def run_once(prod: Rollout, agent: str) -> str:
    return start(prod, agent, RUN_SECONDS="0")


def start(
    prod: Rollout, agent: str, change: Callable[[dict[str, Any]], object] = lambda pod: None, **environment: str
) -> str:
    template = prod.get(cron_job(agent))["spec"]["jobTemplate"]
    pod = template["spec"]["template"]["spec"]
    give(pod, **environment)
    change(pod)
    spec = {**template["spec"], "activeDeadlineSeconds": PATIENCE_SECONDS}
    metadata = {"generateName": f"{agent}-by-hand-", "labels": template["metadata"]["labels"]}
    answer = prod.create(jobs(SYSTEM), {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    assert answer.refusal is None, answer.refusal
    return str(answer.body["metadata"]["name"])


def give(pod: dict[str, Any], **environment: str) -> None:
    (container,) = pod["containers"]
    kept = [variable for variable in container["env"] if variable["name"] not in environment]
    container["env"] = [*kept, *({"name": name, "value": value} for name, value in environment.items())]


def rollout_jobs(prod: Rollout) -> list[str]:
    """Returns the names of the Jobs that a rollout declares."""
    return [
        found["metadata"]["name"]
        for found in prod.items(f"{jobs(SYSTEM)}?labelSelector={names.LABEL_NAME}%3D{names.RECONCILE}")
        if found["metadata"].get("annotations", {}).get(names.REPLACE_UNREADY)
    ]


def ended(prod: Rollout, job: str) -> bool:
    found = prod.get(jobs(SYSTEM, job))
    return bool(condition(found, "Complete") or condition(found, "Failed"))


def succeeded(prod: Rollout, job: str) -> bool:
    eventually(lambda: ended(prod, job), f"{job} has ended")
    return bool(condition(prod.get(jobs(SYSTEM, job)), "Complete"))


def succeeds(prod: Rollout, name: str) -> None:
    eventually(lambda: condition(prod.get(jobs(SYSTEM, name)), "Complete"), f"{name} succeeds")


@contextmanager
def without_runs(prod: Rollout, agent: str) -> Iterator[None]:
    """A Job of the CronJob can appear after the suspension, and before its name is in the status of the CronJob."""

    def suspend(suspended: bool) -> Object:
        return prod.cluster.api.patch(cron_job(agent), {"spec": {"suspend": suspended}})

    before = prod.get(cron_job(agent))
    uid = before["metadata"]["uid"]
    suspend(True)

    def deleted() -> list[str]:
        found = [job["metadata"]["name"] for job in prod.items(jobs(SYSTEM)) if is_under_way(job, uid)]
        for name in found:
            prod.delete(jobs(SYSTEM, name))
        return found

    try:
        eventually(
            lambda: not deleted() and not pods_of(prod, agent), "no run is under way", lambda: pods_of(prod, agent)
        )
        yield
    finally:
        suspend(before["spec"]["suspend"])


def is_under_way(job: Object, owner: str) -> bool:
    is_over = condition(job, "Complete") or condition(job, "Failed")
    return not is_over and any(each["uid"] == owner for each in job["metadata"].get("ownerReferences", ()))


def forget_nodes(prod: Rollout) -> None:
    """With a journal, reconcile would wait before it acts on nodes with new labels."""
    with without_runs(prod, names.RECONCILE):
        prod.cluster.api.patch(
            f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.journal(names.RECONCILE)}", {"data": None}
        )
        succeeds(prod, run_once(prod, names.RECONCILE))


def pods_of(prod: Rollout, agent: str) -> list[str]:
    found = prod.items(f"{pods(SYSTEM)}?labelSelector={names.LABEL_NAME}%3D{agent}")
    return [item["metadata"]["name"] for item in found if item["status"].get("phase") not in ("Succeeded", "Failed")]


def pod_of(prod: Rollout, job: str) -> Object:
    found: Object = eventually(lambda: job_pods(prod, SYSTEM, job), f"{job} has a pod", pause_seconds=0.2)[0]
    return found


def log_of(prod: Rollout, job: str) -> Iterator[Object]:
    path = pods(SYSTEM, pod_of(prod, job)["metadata"]["name"])
    said = prod.get(f"{path}/log?container={pod_of(prod, job)['spec']['containers'][0]['name']}")["message"]
    for line in str(said).splitlines():
        yield json.loads(line)
