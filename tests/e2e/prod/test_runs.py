"""Tests that the agents' pods run as declared, in real containers on a real node."""

import base64
from datetime import datetime, timedelta
from io import BytesIO
from zipfile import ZipFile

import pytest

from agents.runtime.clock import PROMPT_SECONDS, seconds_left
from components.base.zipapp import digest
from tenancy import names
from tests.support.e2e.rollout import AGENTS, SYSTEM, Object, Rollout, condition, job_pods, jobs
from tests.support.waiting import eventually
from toolchain.cluster.control_plane import NODE

CREDENTIALS = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture(scope="module")
def prod(stack: Rollout) -> Rollout:
    stack.settle(runs=AGENTS)
    return stack


def completed_run(prod: Rollout, agent: str) -> Object | None:
    runs = (
        job["metadata"]["name"]
        for job in prod.items(jobs(SYSTEM))
        if job["metadata"].get("ownerReferences", [{}])[0].get("name") == agent and condition(job, "Complete")
    )
    return next((pod for run in runs for pod in job_pods(prod, SYSTEM, run)), None)


def mounts(pod: Object) -> dict[str, Object]:
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    return {mount["mountPath"]: volumes[mount["name"]] for mount in pod["spec"]["containers"][0]["volumeMounts"]}


@pytest.mark.parametrize("agent", AGENTS)
def test_a_cron_jobs_run_completes_in_a_real_container_with_its_code_and_its_credentials(
    prod: Rollout, agent: str
) -> None:
    pod = eventually(lambda: completed_run(prod, agent), f"a run of {agent} has completed")
    assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == (NODE, "Succeeded")
    (container,) = pod["status"]["containerStatuses"]
    assert container["containerID"].startswith("containerd://")
    found = mounts(pod)
    assert set(found) == {names.AGENTS_DIRECTORY, CREDENTIALS}
    sources = {kind for source in found[CREDENTIALS]["projected"]["sources"] for kind in source}
    assert {"serviceAccountToken", "configMap"} <= sources
    code = prod.get(f"/api/v1/namespaces/{SYSTEM}/configmaps/{found[names.AGENTS_DIRECTORY]['configMap']['name']}")
    with ZipFile(BytesIO(base64.b64decode(code["binaryData"][names.AGENTS_KEY]))) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    assert code["metadata"]["annotations"][names.AGENTS_DIGEST] == digest(held)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_runs_pod_has_its_scheduled_minute_in_its_name(prod: Rollout, agent: str) -> None:
    """A late run calculates its end from the minute in the name of its Job."""
    pod = eventually(lambda: completed_run(prod, agent), f"a run of {agent} has completed")["metadata"]
    job = prod.get(jobs(SYSTEM, pod["labels"]["batch.kubernetes.io/job-name"]))
    scheduled = datetime.fromisoformat(
        job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    )
    late = scheduled + timedelta(seconds=10)
    assert seconds_left(1000, pod["name"], late) == 1000 + PROMPT_SECONDS - 10
