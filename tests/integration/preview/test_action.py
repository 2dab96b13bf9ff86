"""Tests the GitHub action with which another repository previews its stack file."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.workspace import Outcome, Workspace, workspace

EXAMPLE = ROOT / "examples" / "template" / "gpus.yaml"


@pytest.fixture(scope="module")
def action(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the action in a clone of the last commit, as GitHub fetches it for another repository."""
    clone = tmp_path_factory.mktemp("action") / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    shutil.copytree(ROOT / ".github", clone / ".github", dirs_exist_ok=True)
    return clone / ".github" / "actions" / "preview"


def run(action: Path, repository: Path, stack: str, before: str = "") -> Outcome:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PULUMI_", "MAKE", "PYTEST", "ARGS"))
    }
    files = {f"GITHUB_{name}": str(repository / name.lower()) for name in ("OUTPUT", "STEP_SUMMARY")}
    inputs = {
        "STACK": stack,
        "BEFORE": before,
        "GITHUB_ACTION_PATH": str(action),
        "KUBECONFIG": str(repository / "none"),
    }
    space = Workspace(repository, {**workspace(repository).env, **kept, **files, **inputs})
    return space.run("bash", str(action / "preview.sh"), cwd=repository)


def test_a_stack_of_another_repository_is_judged_and_the_seats_of_two_branches_are_drawn(
    action: Path, tmp_path: Path
) -> None:
    (tmp_path / "Pulumi.lab.yaml").write_text(EXAMPLE.read_text())
    (tmp_path / "base").mkdir()
    before = EXAMPLE.read_text().replace("gpumem_mib: 4096", "gpumem_mib: 4000")
    (tmp_path / "base" / "Pulumi.lab.yaml").write_text(before)
    outcome = run(action, tmp_path, "lab", "base/Pulumi.lab.yaml")
    assert outcome.code == 0, outcome.text
    for file in ("step_summary", "output"):
        text = (tmp_path / file).read_text()
        assert "gpu: 20480 of 23040 MiB promised, 2560 free" in text
        assert "✅ gpu-tenancy accepts lab" in text
    assert "picture of the seats: build/preview/lab.html" in outcome.text
    (picture,) = (line for line in (tmp_path / "output").read_text().splitlines() if line.startswith("picture="))
    page = Path(picture.removeprefix("picture=")).read_text()
    assert ">4096 MiB in gpu</td>" in page
    assert ">4000 MiB in gpu</td>" in page


@pytest.mark.parametrize(
    ("before", "said", "draws"),
    [("nowhere.yaml", "no picture of the seats: ", False), ("base.yaml", "this change raises residents.", True)],
)
def test_a_refused_stack_fails_the_step_with_its_reason_in_the_summary(
    action: Path, tmp_path: Path, before: str, said: str, *, draws: bool
) -> None:
    (tmp_path / "base.yaml").write_text(EXAMPLE.read_text())
    (tmp_path / "Pulumi.lab.yaml").write_text(EXAMPLE.read_text().replace("gpumem_mib: 4096", "gpumem_mib: 8192"))
    outcome = run(action, tmp_path, "lab", before)
    assert outcome.code != 0
    assert said in outcome.text
    assert ("picture=" in (tmp_path / "output").read_text()) is draws
    assert "1536 over" in (tmp_path / "step_summary").read_text()


def test_a_stack_file_that_is_not_there_is_an_error_of_the_job(action: Path, tmp_path: Path) -> None:
    outcome = run(action, tmp_path, "lab")
    assert outcome.code == 1
    assert outcome.text.startswith(f"::error::Pulumi.lab.yaml is not in {tmp_path}")
