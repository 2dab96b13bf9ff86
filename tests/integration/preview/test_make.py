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


def test_a_wrong_number_ends_with_the_sentence_that_says_what_to_change(clone: Workspace) -> None:
    stack = clone.folder / "clone" / "Pulumi.prod.yaml"
    right = stack.read_text()
    stack.write_text(right.replace("gpumem_mib: 5000", "gpumem_mib: 7000"))
    try:
        outcome = make(clone, "preview")
    finally:
        stack.write_text(right)
    assert outcome.code != 0
    assert "OVER by 1336 MiB" in outcome.text
    *_, headline, description, reason, last = outcome.text.splitlines()
    assert headline.startswith("❌ gpu-tenancy refuses prod (")
    assert description == "   Every promise on a GPU must fit."
    assert reason == (
        "   budgets: t4: 15336 MiB promised, 14000 advertised (1336 over): llama-swap 7000, immich-ml 3000, "
        "…; lower a budget or raise pools.t4"
    )
    assert last.startswith("make: *** ")
    assert outcome.text.count(" create") < 30


def test_a_stack_of_ones_own_begins_with_the_example_that_the_action_previews(clone: Workspace) -> None:
    assert make(clone, "new-stack", "STACK=lab").code == 0
    assert (clone.folder / "clone" / "Pulumi.lab.yaml").read_text().endswith(EXAMPLE.read_text())


def test_up_without_a_cluster_changes_nothing_and_reports_why(clone: Workspace) -> None:
    outcome = make(clone, "up", "YES=1", KUBECONFIG=str(clone.unreachable()))
    assert outcome.code != 0
    assert "no cluster: context gone at https://127.0.0.1:1 does not answer (Connection refused)" in outcome.text
    assert "create" not in outcome.text
