"""Tests a run that a CronJob has started, in a real container on a real node."""

from datetime import datetime, timedelta

import pytest

from agents.runtime.clock import PROMPT_SECONDS, seconds_left
from tenancy import names
from tests.support.e2e.rollout import SYSTEM, Object, Rollout, condition, job_pods, jobs
from tests.support.waiting import eventually
from toolchain.cluster.control_plane import NODE


@pytest.fixture(scope="module")
def prod(stack: Rollout) -> Rollout:
    stack.settle(runs=[names.RECONCILE])
    return stack


def completed_run(prod: Rollout) -> Object | None:
    runs = (
        job["metadata"]["name"]
        for job in prod.items(jobs(SYSTEM))
        if job["metadata"].get("ownerReferences", [{}])[0].get("name") == names.RECONCILE and condition(job, "Complete")
    )
    return next((pod for run in runs for pod in job_pods(prod, SYSTEM, run)), None)


def test_a_runs_pod_has_its_scheduled_minute_in_its_name(prod: Rollout) -> None:
    """A late run calculates its end from the minute in the name of its Job."""
    pod = eventually(lambda: completed_run(prod), "a run of reconcile has completed")
    assert pod["spec"]["nodeName"] == NODE
    job = prod.get(jobs(SYSTEM, pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]))
    scheduled = datetime.fromisoformat(
        job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    )
    late = scheduled + timedelta(seconds=10)
    assert seconds_left(1000, pod["metadata"]["name"], late) == 1000 + PROMPT_SECONDS - 10
