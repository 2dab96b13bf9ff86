"""Runs of the agents by hand, made from their CronJobs as `kubectl create job --from` makes them."""

from tests.cluster.rollout import SYSTEM, Rollout, condition, eventually, jobs


def run_once(prod: Rollout, agent: str) -> str:
    """The name of a new Job: one pass of the agent, in a real container."""
    template = prod.get(f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/{agent}")["spec"]["jobTemplate"]
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
