"""Tests that `preflight` and the API server reach the same verdict on each pod of record 0000."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stacks import platform, settings
from tests.support.e2e import given_world
from tests.support.e2e.admitted import PLURALS
from tests.support.e2e.plugin import environ
from tests.support.e2e.server import NAMESPACES, ApiAnswer, ApiServer
from tests.support.engine import build
from tests.support.given_clusters import GPU, Cluster, of_deployment, pod, record_0000
from tests.support.paths import ROOT
from tests.support.waiting import eventually

GPUMEM = "example.com/gpumem"


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> Cluster:
    found = record_0000(
        *of_deployment("budgeted", "frigate", limits={GPU: "1", GPUMEM: "1"}),
        *of_deployment("host", "frigate", hostNetwork=True),
        *of_deployment("critical", "web", priorityClassName="system-cluster-critical"),
        *of_deployment("classed", "web", priorityClassName="gpu-workload"),
        *of_deployment("plain", "web"),
        pod("chooses", "immich", annotations={"cdi.k8s.io/x": "nvidia.com/gpu=0"}),
    )
    found.runtime_classes = [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}]
    given_world.write(server, found)
    return found


@pytest.fixture(scope="module")
def folder(server: ApiServer, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert cluster.pods
    made = tmp_path_factory.mktemp("stack")
    done = run(server, made, "gpumem", "init", "--stack", "mine")
    assert done.returncode == 0, done.stderr
    path = made / "Pulumi.mine.yaml"
    path.write_text(path.read_text().replace("mode: observe", "mode: enforce"))
    return made


@pytest.fixture(scope="module")
def report(server: ApiServer, folder: Path) -> Mapping[str, Any]:
    done = run(server, folder, "gpumem.preflight", "--stack", "mine", "-o", "json")
    assert done.returncode == 1, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["unknown"] == []
    return found


@pytest.fixture(scope="module")
def enforced(server: ApiServer, folder: Path, report: Mapping[str, Any]) -> Mapping[str, Any]:
    declared = settings.load_file(folder / "Pulumi.mine.yaml")
    for manifest in build(lambda: platform.build(declared)).objects():
        metadata, namespace = manifest["metadata"], f"{NAMESPACES}/{manifest['metadata']['name']}"
        if manifest["kind"] == "Namespace" and server.api.get(namespace) is not None:
            server.api.patch(namespace, {"metadata": {"labels": metadata["labels"]}})
        elif manifest["kind"] in PLURALS:
            server.apply(manifest, PLURALS[manifest["kind"]])
    unbudgeted = of_deployment("probe", "immich", limits={GPU: "1"})[0]
    eventually(lambda: again(server, unbudgeted).refusal is not None, "the policies are in force")
    return report


def run(server: ApiServer, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", *arguments, f"--kubeconfig={server.kubeconfig}"],
        cwd=folder,
        env={**environ(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def again(server: ApiServer, found: Mapping[str, Any]) -> ApiAnswer:
    metadata = {key: found["metadata"][key] for key in ("namespace", "labels", "annotations", "ownerReferences")}
    spec = {key: value for key, value in found["spec"].items() if key != "nodeName"}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "again", **metadata}, "spec": spec}
    return server.request("POST", f"{NAMESPACES}/{metadata['namespace']}/pods?dryRun=All", manifest)


def test_preflight_denies_the_pods_that_the_api_server_denies(
    server: ApiServer, cluster: Cluster, enforced: Mapping[str, Any]
) -> None:
    denied = {(row["namespace"], row["name"]) for row in enforced["denies"]}

    def refusals() -> dict[tuple[str, str], str]:
        found = {}
        for each in cluster.pods:
            name = each["metadata"]["name"].removesuffix("-6c9f8d7b54-x0000").removesuffix("-abcde")
            if (refusal := again(server, each).refusal) is not None:
                found[each["metadata"]["namespace"], name] = refusal
        return found

    eventually(lambda: denied <= refusals().keys(), "the policies are in force", lambda: str(refusals()))
    refused = refusals().keys()
    assert refused == denied
    assert {("immich", "immich-ml"), ("web", "critical"), ("immich", "chooses")} <= refused
    assert {("web", "plain"), ("frigate", "budgeted"), ("nvidia", "nvidia-device-plugin-daemonset")}.isdisjoint(refused)
