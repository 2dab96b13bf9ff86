"""`pulumi new` from the template, as a new user types it, and the preview of what it made."""

from pathlib import Path

import pytest
import yaml

from tests.support.paths import ROOT
from toolchain.workspace import Outcome, Workspace

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


def test_what_it_makes_passes_the_gate_and_a_wrong_number_does_not(space: Workspace, made: Path) -> None:
    outcome = preview(space, made)
    assert outcome.code == 0, outcome.text
    assert "gputenancy:index:Platform gpus create" in outcome.text
    settings = made / "gpus.yaml"
    settings.write_text(settings.read_text().replace("gpumem_mib: 4096", "gpumem_mib: 8192"))
    outcome = preview(space, made)
    assert outcome.code != 0
    assert (
        "budgets: gpu: 24576 MiB promised, 23040 advertised (1536 over): llm 16384, photo-search 8192" in outcome.text
    )


def test_a_program_whose_provider_would_replace_the_ledger_is_refused(space: Workspace, made: Path) -> None:
    project = yaml.safe_load((made / "Pulumi.yaml").read_text())
    assert project["config"].pop("kubernetes:enableConfigMapMutable") == {"value": True}
    (made / "Pulumi.yaml").write_text(yaml.safe_dump(project))
    outcome = preview(space, made)
    assert outcome.code != 0
    assert "kubernetes:enableConfigMapMutable: must be true under config in Pulumi.yaml" in outcome.text
    assert "Traceback" not in outcome.text
