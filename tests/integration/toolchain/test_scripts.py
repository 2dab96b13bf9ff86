"""The two scripts of the Makefile, with stand-ins for what they call."""

import subprocess
from pathlib import Path

import pytest

from tests.integration.toolchain.conftest import script
from tests.support.paths import ROOT

STACK_FILE = "config:\n  # a comment\n  gpu-tenancy:pools: {}\n\n  gpu-tenancy:residents: {}\n"
SALT = "encryptionsalt: v1:abc=:v1:def=="


def run(name: str, argument: str, folder: Path, *, answer: str = "", **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [ROOT / "toolchain" / name, argument],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **env},
        input=answer,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A folder from which the current cluster is `context lab at https://lab:6443`."""
    script(
        tmp_path / ".venv" / "bin" / "python", '[ "$*" = "-m stacks cluster" ] && echo context lab at https://lab:6443'
    )
    return tmp_path


def test_a_typed_yes_goes_on_and_the_question_names_the_cluster(cluster: Path) -> None:
    done = run("confirm.sh", "Apply prod", cluster, answer="yes\n")
    assert done.returncode == 0
    assert "Apply prod: context lab at https://lab:6443\nType yes to go on: " in done.stdout


@pytest.mark.parametrize("answer", ["no\n", "y\n", "YES\n", "\n", ""])
def test_any_other_answer_changes_nothing(cluster: Path, answer: str) -> None:
    done = run("confirm.sh", "Apply prod", cluster, answer=answer)
    assert (done.returncode, done.stderr) == (1, "Nothing was changed.\n")


def test_a_pipeline_answers_with_yes_1_and_the_cluster_is_still_named(cluster: Path) -> None:
    done = run("confirm.sh", "Apply prod", cluster, YES="1")
    assert (done.returncode, done.stdout) == (0, "Apply prod: context lab at https://lab:6443 (YES=1)\n")


def test_without_a_cluster_there_is_no_question(tmp_path: Path) -> None:
    script(tmp_path / ".venv" / "bin" / "python", "echo no cluster >&2; exit 1")
    done = run("confirm.sh", "Apply prod", tmp_path, YES="1")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no cluster\n")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose Pulumi writes the stack file anew, as the real one does when it makes a stack."""
    rewrite = f'[ "$2" != "$PWD" ] && printf "config: rewritten\\n{SALT}\\n" > "$2/Pulumi.lab.yaml"; echo Created stack'
    script(tmp_path / ".toolchain" / "bin" / "pulumi", rewrite)
    (tmp_path / "Pulumi.yaml").write_text("name: gpu-tenancy\n")
    (tmp_path / "Pulumi.lab.yaml").write_text(STACK_FILE)
    return tmp_path


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_new_stack_adds_its_salt_and_leaves_the_rest_of_the_file_alone(project: Path, ending: str) -> None:
    (project / "Pulumi.lab.yaml").write_text(STACK_FILE.removesuffix("\n") + ending)
    done = run("ensure-stack.sh", "lab", project)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (project / "Pulumi.lab.yaml").read_text() == f"{STACK_FILE}{SALT}\n"


def test_a_stack_file_with_a_salt_stays_as_it_is(project: Path) -> None:
    (project / "Pulumi.lab.yaml").write_text(f"{STACK_FILE}encryptionsalt: v1:mine\n")
    assert run("ensure-stack.sh", "lab", project).returncode == 0
    assert (project / "Pulumi.lab.yaml").read_text() == f"{STACK_FILE}encryptionsalt: v1:mine\n"


def test_what_pulumi_complains_of_is_shown(project: Path) -> None:
    script(project / ".toolchain" / "bin" / "pulumi", "echo error: incorrect passphrase >&2; exit 255")
    done = run("ensure-stack.sh", "lab", project)
    assert (done.returncode, done.stderr) == (1, "error: incorrect passphrase\n")
    assert (project / "Pulumi.lab.yaml").read_text() == STACK_FILE


def test_make_alone_lists_the_targets() -> None:
    listed = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "  make preview" in listed
    assert "  make test" in listed
