"""Makes a project from our template with `pulumi new`, and previews the project."""

from pathlib import Path

import pytest
import yaml

from tests.support.paths import ROOT
from tests.support.workspace import Outcome, Workspace

TEMPLATE = ROOT / "examples" / "template"


@pytest.fixture
def made(space: Workspace) -> Path:
    project = space.folder / "my-gpus"
    new = ("new", str(TEMPLATE), "--dir", str(project), "--generate-only", "--yes", "--name", "my-gpus")
    outcome = space.pulumi(*new, "--description", "Ours", cwd=space.folder)
    assert outcome.code == 0, outcome.text
    (project / "venv").symlink_to(ROOT / ".venv")
    return project


def preview(space: Workspace, project: Path) -> Outcome:
    return space.preview(project=project, stack="dev", PYTHONPATH=str(ROOT))


def test_what_it_makes_passes_the_gate(space: Workspace, made: Path) -> None:
    outcome = preview(space, made)
    assert outcome.code == 0, outcome.text
    assert "gputenancy:index:Platform gpus create" in outcome.text


def test_a_program_whose_provider_would_replace_the_ledger_is_refused(space: Workspace, made: Path) -> None:
    project = yaml.safe_load((made / "Pulumi.yaml").read_text())
    assert project["config"].pop("kubernetes:enableConfigMapMutable") == {"value": True}
    (made / "Pulumi.yaml").write_text(yaml.safe_dump(project))
    outcome = preview(space, made)
    assert outcome.code != 0
    assert "kubernetes:enableConfigMapMutable: must be true under config in Pulumi.yaml" in outcome.text
    assert "Traceback" not in outcome.text
