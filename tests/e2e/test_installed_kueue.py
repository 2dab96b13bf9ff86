"""Rolls out a stack on a cluster with a Kueue that somebody else has installed."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.kueue import Chart, KueueArgs, KueueSpec, values
from tests.support.e2e import rollout
from tests.support.e2e.rollout import Rollout, await_running, complete, job, jobs, workload
from tests.support.paths import ROOT
from tests.support.prod import raw
from tests.support.workspace import workspace
from toolchain.cluster import cluster
from toolchain.cluster.extent import Extent

HOME, TEAM, QUEUE = "queueing", "team-a", "team-a-gpu"
CHART = ROOT / ".toolchain" / "charts" / "kueue"
VERSION = str(yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text())["config"]["gpu-tenancy:kueue"]["version"])
MANAGED = {"kueue-managed": "true"}
PROGRAM = f"""
import pathlib, pulumi, pulumi_kubernetes as k8s
home = k8s.core.v1.Namespace("home", metadata={{"name": {HOME!r}}})
values = pulumi.Config().require_object("values")
k8s.helm.v3.Release("kueue", name="kueue", namespace={HOME!r}, chart={str(CHART)!r}, values=values,
                    opts=pulumi.ResourceOptions(depends_on=[home]))
"""


def others_values() -> dict[str, Any]:
    chart = yaml.safe_load((CHART / "values.yaml").read_text())
    configuration = yaml.safe_load(chart["managerConfig"]["controllerManagerConfigYaml"])
    assert {"batch/job", "pod", "deployment"} <= set(configuration["integrations"]["frameworks"])
    configuration["managedJobsNamespaceSelector"] = {"matchLabels": MANAGED}
    chart_args = Chart(address=str(CHART))
    ours = values(KueueArgs(spec=KueueSpec(version=VERSION), chart=chart_args, frameworks=[], manages_all=False))
    return {**ours, "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(configuration)}}


def settings(installed: dict[str, Any]) -> dict[str, Any]:
    prod = raw()
    queues = prod["queues"]
    (quota,) = (queue["quotas"]["gpu-any"] for queue in queues["cluster_queues"].values())
    quota |= {"cpu": {"nominal": 16}, "memory": {"nominal": "64Gi"}}
    queues |= {"installed_kueue": installed, "local_queues": {QUEUE: queues["local_queues"][QUEUE]}}
    queues["workload_priorities"].pop("gpu-urgent")  # another tenant's
    return {
        "cluster": prod["cluster"],
        "pools": {"batch": prod["pools"]["batch"]},
        "tenants": {TEAM: {}},
        "priorities": {"gpu-workload": prod["priorities"]["gpu-workload"]},
        "admission": {"gpu_priority": "gpu-workload"},
        "queues": queues,
    }


@pytest.fixture(scope="module")
def others(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollout]:
    with cluster.running(tmp_path_factory.mktemp("others"), extent=Extent.SIMULATED) as running:
        space = workspace(tmp_path_factory.mktemp("lab"))
        project = tmp_path_factory.mktemp("kueue")
        runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": str(ROOT / ".venv")}}
        (project / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "others", "runtime": runtime}))
        (project / "__main__.py").write_text(PROGRAM)
        (project / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": {"others:values": others_values()}}))
        reached = {"KUBECONFIG": str(running.kubeconfig)}
        for command in (("stack", "init", "dev"), ("up", "--yes", "--skip-preview", "--stack", "dev")):
            outcome = space.pulumi(*command, cwd=project, **reached)
            assert outcome.code == 0, outcome.text
        yield Rollout(running, space)


def run(others: Rollout, *arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    environment = {"KUBECONFIG": str(others.cluster.kubeconfig)}
    rollout.await_schemas(others.cluster.api)
    outcome = others.workspace.run(*command, cwd=others.workspace.project, **environment)
    return outcome.text


def write(others: Rollout, installed: dict[str, Any]) -> None:
    path = Path(others.workspace.project / "Pulumi.lab.yaml")
    parts = {f"gpu-tenancy:{name}": part for name, part in settings(installed).items()}
    path.write_text(yaml.safe_dump({"config": parts}))


def test_a_job_of_a_queue_tenant_is_admitted_and_nothing_bypasses_the_queue(others: Rollout) -> None:
    write(others, {"namespace": HOME, "namespace_labels": MANAGED})
    said = run(others, "stacks", "up", "--stack", "lab", "--yes")
    assert others.get(f"/api/v1/namespaces/{TEAM}")["metadata"]["labels"]["kueue-managed"] == "true", said
    asked = {"cpu": "1", "memory": "1Gi"}
    train = job("train", QUEUE)
    train["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = asked
    bare = {"metadata": {"name": "bare"}, "spec": {"containers": [rollout.container({"nvidia.com/gpu": "1"})]}}

    def refusal() -> str:
        return str(others.cluster.api.request("POST", f"{rollout.pods(TEAM)}?dryRun=All", bare).refusal)

    denied = "GPUs of this namespace are handed out by its queue"
    rollout.eventually(lambda: denied in refusal(), "a pod past the queue is denied", refusal)
    rollout.submit(others, TEAM, train)
    await_running(others, TEAM, "train")
    admitted = workload(others, TEAM, "train")["status"]["admission"]
    assert admitted["clusterQueue"] == "gpu-cq"
    assert set(admitted["podSetAssignments"][0]["flavors"]) == {"nvidia.com/gpu", "cpu", "memory"}
    (pod,) = rollout.job_pods(others, TEAM, "train")
    assert pod["spec"]["priorityClassName"] == "gpu-workload"

    rollout.submit(others, TEAM, job("second", QUEUE))
    rollout.await_waiting(others, TEAM, "second", "insufficient unused quota")
    complete(others, TEAM, "train")
    await_running(others, TEAM, "second")
    assert others.get(jobs(TEAM, "second"))["spec"]["suspend"] is False
