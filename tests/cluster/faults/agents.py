"""Runs of the agents by hand, made from their CronJobs as `kubectl create job --from` makes them; and none at all."""

from collections.abc import Iterator
from contextlib import contextmanager

from tenancy import names
from tests.cluster.rollout import PATIENCE_SECONDS, SYSTEM, Rollout, condition, eventually, jobs, pods


def run_once(prod: Rollout, agent: str) -> str:
    """The name of a new Job: one pass of the agent, in a real container."""
    template = prod.get(f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/{agent}")["spec"]["jobTemplate"]
    template["spec"]["activeDeadlineSeconds"] = PATIENCE_SECONDS  # a busy machine starts containers slowly
    (container,) = template["spec"]["template"]["spec"]["containers"]
    for variable in container["env"]:
        if variable["name"] == "RUN_SECONDS":
            variable["value"] = "0"
    metadata = {"generateName": f"{agent}-by-hand-", "labels": template["metadata"]["labels"]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}
    answer = prod.create(jobs(SYSTEM), job)
    assert answer.refusal is None, answer.refusal
    return str(answer.body["metadata"]["name"])


def succeeds(prod: Rollout, name: str) -> None:
    """Waits for the Job's end. Raises ClusterError where it does not succeed in time."""
    eventually(lambda: condition(prod.get(jobs(SYSTEM, name)), "Complete"), f"{name} succeeds")


@contextmanager
def without_runs(prod: Rollout, agent: str) -> Iterator[None]:
    """The agent's CronJob starts no run in the block, and none of its runs is under way."""
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


def pods_of(prod: Rollout, agent: str) -> list[str]:
    """Those that have not ended."""
    found = prod.items(f"{pods(SYSTEM)}?labelSelector={names.LABEL_NAME}%3D{agent}")
    return [item["metadata"]["name"] for item in found if item["status"].get("phase") not in ("Succeeded", "Failed")]
