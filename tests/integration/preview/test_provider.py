"""Tests the component ConfigGroup of the Kubernetes provider. The installer changes the provider's code for it."""

from pathlib import Path
from typing import Any

import yaml

from tests.support.workspace import Workspace

NAME = {"name": "found", "namespace": "default"}
OBJECTS = (
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": NAME, "data": {"size": "2"}},
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": NAME, "spec": {"replicas": 2}},
    {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": NAME, "spec": {"schedule": "@daily"}},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": NAME, "rules": []},
)
PROGRAM = {
    "name": "kinds",
    "runtime": "yaml",
    "resources": {
        "files": {"type": "pulumi:providers:kubernetes", "properties": {"renderYamlToDirectory": "out"}},
        "group": {
            "type": "kubernetes:yaml/v2:ConfigGroup",
            "properties": {"yaml": yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [*OBJECTS]})},
            "options": {"provider": "${files}"},
        },
    },
}


def test_a_config_group_writes_each_object_of_its_text(space: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "kinds"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(PROGRAM))
    assert space.pulumi("stack", "init", "one", cwd=folder).code == 0
    outcome = space.pulumi("up", "--yes", "--skip-preview", "--stack", "one", "--color", "never", cwd=folder)
    assert outcome.code == 0, outcome.text
    assert "kubernetes:core/v1:ConfigMap group:default/found created" in outcome.text
    assert "kubernetes:apps/v1:Deployment group:default/found created" in outcome.text
    written = [own(yaml.safe_load(path.read_text())) for path in (folder / "out").rglob("*.yaml")]
    assert sorted(written, key=str) == sorted(OBJECTS, key=str)


def own(written: dict[str, Any]) -> dict[str, Any]:
    return {**written, "metadata": {name: written["metadata"][name] for name in NAME}}
