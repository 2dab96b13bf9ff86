"""Tests MutatingAdmissionPolicy in the versions v1beta1 and v1, and the change from v1beta1 to v1."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.e2e.admitted import create, gpu_pod, spec_of
from tests.support.e2e.rollout import await_schemas
from tests.support.e2e.server import ApiServer, api_server
from tests.support.prod import raw
from tests.support.waiting import eventually
from tests.support.workspace import Workspace, workspace
from toolchain.cluster.background import call_repeatedly

TENANT, SELECTOR = "immich", "nodeSelector"
POLICIES = "/apis/admissionregistration.k8s.io/{version}/mutatingadmissionpolicies"


@pytest.fixture
def server(installed: None, tmp_path: Path) -> Iterator[ApiServer]:
    """An API server of its own, because a whole stack is rolled out on it."""
    with api_server(tmp_path / "alone") as running:
        yield running


@pytest.fixture
def space(server: ApiServer, tmp_path: Path) -> Iterator[Workspace]:
    (tmp_path / "lab").mkdir()
    with call_repeatedly(lambda: count(server), 0.5):
        space = workspace(tmp_path / "lab")
        assert space.pulumi("stack", "init", "lab", cwd=space.project).code == 0
        yield space


def count(server: ApiServer) -> None:
    """Writes the status of each new quota, because Pulumi waits for it and no controller runs here."""
    for quota in (server.api.get("/api/v1/resourcequotas") or {})["items"]:
        if "hard" not in quota["status"]:
            metadata, hard = quota["metadata"], quota["spec"]["hard"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/resourcequotas/{metadata['name']}/status"
            server.api.patch(path, {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})


def stack(version: str) -> dict[str, Any]:
    prod = raw()
    return {
        "cluster": prod["cluster"],
        "pools": {"t4": prod["pools"]["t4"]},
        "tenants": {TENANT: {}},
        "priorities": {"gpu-workload": prod["priorities"]["gpu-workload"]},
        "admission": {"gpu_priority": "gpu-workload", "mutating_api": version},
        "unbudgeted": {"machine-learning": {"tenant": TENANT, "pool": "t4", "measured_mib": 500}},
    }


def roll_out(server: ApiServer, space: Workspace, version: str) -> None:
    parts = {f"gpu-tenancy:{name}": part for name, part in stack(version).items()}
    (space.project / "Pulumi.lab.yaml").write_text(yaml.safe_dump({"config": parts}))
    await_schemas(server.api)
    outcome = space.run(*space.engine("up", "lab"), cwd=space.project, KUBECONFIG=str(server.kubeconfig))
    assert outcome.code == 0, outcome.text


def stamped(server: ApiServer) -> bool:
    spec = spec_of(create(server, TENANT, gpu_pod(None)))
    return spec.get("priorityClassName") == "gpu-workload" and SELECTOR in spec


def policies(server: ApiServer, version: str) -> set[str]:
    found = server.api.get(POLICIES.format(version=version)) or {"items": []}
    return {item["metadata"]["name"] for item in found["items"]}


def test_policies_of_the_beta_stamp_pods_and_stay_when_the_stack_goes_on_to_v1(
    server: ApiServer, space: Workspace
) -> None:
    roll_out(server, space, "v1beta1")
    beta = policies(server, "v1beta1")
    assert len(beta) == 2
    eventually(lambda: stamped(server), "pods with a GPU are stamped")
    roll_out(server, space, "v1")
    assert policies(server, "v1") == beta
    eventually(lambda: stamped(server), "pods with a GPU are stamped still")
