"""Rolls out a program that `pulumi new` has made from our template."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenancy import names
from tests.support.e2e.remains import left_behind
from tests.support.e2e.rollout import Rollout, await_schemas, changes
from tests.support.paths import ROOT
from tests.support.waiting import becomes, eventually
from tests.support.workspace import Outcome, Workspace, workspace
from toolchain.cluster import kubeconfig

NODE, LABEL, SELECTOR = "template-0", {"template/gpu": "present"}, 'node_selector: {nvidia.com/gpu.present: "true"}'
SHOWN = {"nvidia.com/gpu.memory": "24564", "nvidia.com/gpu.count": "1"}
GPUMEM = "example.com/gpumem"
QUIET = ("--color", "never", "--suppress-progress", "--suppress-outputs")
LEDGER = "/api/v1/namespaces/gpu-tenancy-system/configmaps/gpu-tenancy-ledger"


@pytest.fixture(scope="module")
def cluster(stack: Rollout) -> Iterator[Rollout]:
    becomes(lambda: left_behind(stack), set(), "a module before has taken prod away")
    await_schemas(stack.cluster.api)
    stack.cluster.add_node(NODE, labels={**LABEL, **SHOWN}, resources={})
    yield stack
    for path in (f"/api/v1/nodes/{NODE}", "/api/v1/namespaces/gpu-operator"):
        stack.delete(path)


@pytest.fixture(scope="module")
def space(cluster: Rollout, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    space = workspace(tmp_path_factory.mktemp("template"))
    new = ("new", str(ROOT / "examples" / "template"), "--dir", str(made(space)), "--generate-only", "--yes")
    assert space.pulumi(*new, "--name", "my-gpus", "--description", "Ours", cwd=space.folder).code == 0
    (made(space) / "venv").symlink_to(ROOT / ".venv")
    edit(space, SELECTOR, f"node_selector: {json.dumps(LABEL)}")
    (made(space) / "kubeconfig").write_text(json.dumps(elsewhere(cluster.cluster.kubeconfig)))
    assert run(space, "stack", "init", "dev").code == 0
    assert run(space, "config", "set", "kubernetes:context", kubeconfig.CONTEXT).code == 0
    return space


def made(space: Workspace) -> Path:
    return space.folder / "my-gpus"


def edit(space: Workspace, old: str, new: str) -> None:
    settings = made(space) / "gpus.yaml"
    assert old in settings.read_text()
    settings.write_text(settings.read_text().replace(old, new))


def elsewhere(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    document["clusters"].append({"name": "elsewhere", "cluster": {"server": "https://127.0.0.1:1"}})
    document["contexts"].append({"name": "elsewhere", "context": {**document["contexts"][0]["context"]}})
    document["contexts"][-1]["context"]["cluster"] = document["current-context"] = "elsewhere"
    return document


def run(space: Workspace, *arguments: str) -> Outcome:
    config = str(made(space) / "kubeconfig")
    return space.pulumi(*arguments, cwd=made(space), KUBECONFIG=config, PYTHONPATH=str(ROOT))


def up(space: Workspace) -> Outcome:
    pack = ("--policy-pack", str(ROOT / "policy"))
    outcome = run(space, "up", "--yes", "--skip-preview", "--stack", "dev", *QUIET, *pack)
    assert outcome.code == 0, outcome.text
    return outcome


def test_it_is_rolled_out_and_advertises_where_the_configuration_says(cluster: Rollout, space: Workspace) -> None:
    up(space)
    eventually(lambda: cluster.capacity(NODE).get(GPUMEM) == "23040", "its node advertises memory")
    assert cluster.get("/apis/scheduling.k8s.io/v1/priorityclasses/gpu-workload")["value"] == 1_000_000


def test_a_changed_budget_changes_the_ledger_and_a_changed_priority_is_a_new_class(
    cluster: Rollout, space: Workspace
) -> None:
    """The value of a PriorityClass is immutable (docs/adr/0009)."""
    before = cluster.get(LEDGER)["metadata"]
    edit(space, "gpumem_mib: 4096", "gpumem_mib: 6144")
    edit(space, "value: 1000000", "value: 1000001")
    outcome = run(space, "preview", "--stack", "dev", *QUIET)
    assert outcome.code == 0, outcome.text
    outcome = up(space)
    assert "deleted" not in changes(outcome), outcome.text
    after = cluster.get(LEDGER)
    assert after["metadata"]["uid"] == before["uid"]
    assert after["metadata"]["resourceVersion"] != before["resourceVersion"]
    assert cluster.capacity(NODE)[GPUMEM] == "23040"
    assert cluster.get("/apis/scheduling.k8s.io/v1/priorityclasses/gpu-workload")["value"] == 1_000_001


def test_destroy_leaves_nothing_but_the_namespace_of_somebody_else(cluster: Rollout, space: Workspace) -> None:
    outcome = run(space, "destroy", "--yes", "--skip-preview", "--stack", "dev", *QUIET)
    assert outcome.code == 0, outcome.text
    becomes(lambda: left_behind(cluster), {"namespace gpu-operator"}, "all but somebody else's namespace is gone")
    assert names.EXEMPT not in cluster.get("/api/v1/namespaces/gpu-operator")["metadata"]["labels"]
    assert GPUMEM not in cluster.capacity(NODE)
