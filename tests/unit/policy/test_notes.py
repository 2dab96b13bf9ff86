"""Tests the warnings about workloads that are accepted but will not work as expected."""

import io
from contextlib import redirect_stdout

import pytest

from tenancy.names import AGENTS_DIRECTORY
from tests.support.consumers import CONFIG, gpu, workload
from tests.support.graphs import UNKNOWN, Manifest, cron_job, judged

WARNING = (
    "gpu-tenancy: warning: Deployment tts/tts declares 1 replicas, and the demand gate starts it: each rollout would "
    "start it without enough memory; write replicas: 0, with ignore_changes of spec.replicas"
)


def on_demand(replicas: object, *, name: str = "tts", namespace: str = "tts") -> Manifest:
    found = workload(namespace, main=gpu())
    found["metadata"]["name"] = name
    return found | {"spec": found["spec"] | ({} if replicas is None else {"replicas": replicas})}


def printed(manifest: Manifest) -> str:
    lines = io.StringIO()
    with redirect_stdout(lines):
        assert judged({"x": manifest}, CONFIG) == []
    return lines.getvalue()


def test_an_on_demand_workload_that_is_declared_as_running_gets_a_warning() -> None:
    assert WARNING in printed(on_demand(1))


DIGEST = "docker.io/library/python@sha256:" + "0" * 64


@pytest.mark.parametrize(("image", "is_warned_about"), [("python:3.13.9", True), (DIGEST, False), (UNKNOWN, False)])
def test_an_agents_image_without_a_digest_gets_a_warning(image: object, is_warned_about: bool) -> None:
    found = cron_job("reconcile")
    container = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    container.update({"image": image, "command": ["python", "-I", f"{AGENTS_DIRECTORY}/agents.pyz", "reconcile"]})
    lines = io.StringIO()
    with redirect_stdout(lines):
        judged({"x": found}, CONFIG)
    assert ("cluster.agent_image: python:3.13.9 has no digest" in lines.getvalue()) is is_warned_about
    assert ("agent_image" in lines.getvalue()) is is_warned_about
