"""Tests on a real API server that `preflight` finds the frameworks that a stack queues."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tenancy.frameworks import FRAMEWORKS, FrameworkName
from tests.support.e2e.given_world import create_pod
from tests.support.e2e.plugin import environ
from tests.support.e2e.server import NAMESPACES, ApiServer
from tests.support.given_clusters import of_deployment
from tests.support.paths import ROOT
from tests.support.prod import raw
from tests.support.waiting import eventually

JOBSET = FRAMEWORKS[FrameworkName.JOBSET]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERSION = {
    "name": "v1alpha2",
    "served": True,
    "storage": True,
    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stack")
    prod = raw()
    prod["queues"]["frameworks"] = ["batch/job", str(JOBSET.name)]
    prod["queues"]["admission_checks"] = {"autoscaler": {"provisioning_class_name": "check-capacity.example.com"}}
    written = {"config": {f"gpu-tenancy:{name}": part for name, part in prod.items()}}
    (made / "Pulumi.mine.yaml").write_text(yaml.safe_dump(written))
    return made


@pytest.fixture(autouse=True)
def _definitions(server: ApiServer) -> Iterator[None]:
    yield
    for path in [f"{DEFINITIONS}/{each['metadata']['name']}" for each in (server.api.get(DEFINITIONS) or {})["items"]]:
        server.request("DELETE", path)
        eventually(lambda path=path: server.api.get(path) is None, f"{path} is deleted")


def parts(server: ApiServer, folder: Path) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "gpumem.preflight", "--stack=mine", "-o=json", f"--kubeconfig={server.kubeconfig}"],
        cwd=folder,
        env={**environ(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return {each["name"]: each["text"] for each in json.loads(done.stdout)["parts"]}


def define(server: ApiServer, group: str, kind: str, plural: str) -> None:
    singular = kind.lower()
    names = {"kind": kind, "plural": plural, "singular": singular, "listKind": f"{kind}List"}
    manifest = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [VERSION]},
    }
    server.api.create(DEFINITIONS, manifest)
    served = f"/apis/{group}/{VERSION['name']}/{plural}"
    eventually(lambda: server.request("GET", served).code == 200, f"{served} is served")


def test_preflight_names_the_missing_kind_then_the_missing_controller(server: ApiServer, folder: Path) -> None:
    found = parts(server, folder)
    assert f"the cluster has no kind {JOBSET.resource}.{JOBSET.group}; install its controller" in found["JobSet"]
    assert "needs the kind provisioningrequests.autoscaling.x-k8s.io" in found["Cluster autoscaler"]
    define(server, JOBSET.group, JOBSET.kind, JOBSET.resource)
    define(server, "autoscaling.x-k8s.io", "ProvisioningRequest", "provisioningrequests")
    found = parts(server, folder)
    assert "no pod has the account jobset-system/jobset-controller-manager" in found["JobSet"]
    assert "Cluster autoscaler" not in found
    *_, namespace, account = JOBSET.accounts[0].split(":")
    server.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for pod in of_deployment(account, namespace, serviceAccountName=account):
        create_pod(server, pod)
    assert "JobSet" not in parts(server, folder)
