"""Makes a project from our template with `pulumi new`, and previews the project."""

from tests.support.paths import ROOT
from tests.support.workspace import Workspace

TEMPLATE = ROOT / "examples" / "template"


def test_what_it_makes_passes_the_gate(space: Workspace) -> None:
    project = space.folder / "my-gpus"
    new = ("new", str(TEMPLATE), "--dir", str(project), "--generate-only", "--yes", "--name", "my-gpus")
    outcome = space.pulumi(*new, "--description", "Ours", cwd=space.folder)
    assert outcome.code == 0, outcome.text
    (project / "venv").symlink_to(ROOT / ".venv")
    outcome = space.preview(project=project, stack="dev", PYTHONPATH=str(ROOT))
    assert outcome.code == 0, outcome.text
    assert "gputenancy:index:Platform gpus create" in outcome.text
