"""Tests the first `make` commands of a new user in a new clone."""

import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT
from tests.support.workspace import Outcome, Workspace, workspace

EXAMPLE = ROOT / "examples" / "template" / "gpus.yaml"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("newcomer")
    subprocess.run(["git", "clone", "--quiet", ROOT, folder / "clone"], check=True)
    return workspace(folder)


def make(space: Workspace, *arguments: str, **env: str) -> Outcome:
    of_this_run = ("PULUMI_", "MAKE", "ARGS", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(of_this_run)}
    shell = Workspace(space.folder, {**kept, "KUBECONFIG": str(space.folder / "no-kubeconfig")})
    return shell.run("make", *arguments, cwd=space.folder / "clone", **env)


def test_one_command_previews_prod(clone: Workspace) -> None:
    outcome = make(clone, "preview")
    assert outcome.code == 0, outcome.text
    assert "t4: 13336 of 14000 MiB promised, 664 free" in outcome.text
    assert "llama-swap 5000" in outcome.text
    assert "the program is judged without one" in outcome.text
    assert re.search(r"^prod: \+ \d\d\d to create$", outcome.text, re.MULTILINE)
    assert re.search(r"^✅ gpu-tenancy accepts prod \(\d+\.\d s\)\n\Z", outcome.text, re.MULTILINE)
    assert outcome.text.index("to create") < outcome.text.index("13336 of 14000")
    assert "\x1b[" not in outcome.text
    assert len(outcome.text.splitlines()) < 80
    assert "$PATH" not in outcome.text
    (warning,) = re.findall(r"warning: (.*)", outcome.text)
    assert warning.startswith("cluster.agent_image: ")


def test_a_stack_of_ones_own_begins_with_the_example_that_the_action_previews(clone: Workspace) -> None:
    assert make(clone, "new-stack", "STACK=lab").code == 0
    assert (clone.folder / "clone" / "Pulumi.lab.yaml").read_text().endswith(EXAMPLE.read_text())
