"""Tests the kubectl plugin that `make plugin` writes, with a fake kubectl and without a cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.given_clusters import record_0000
from tests.support.kubectl import api, pod
from tests.support.plugin import install
from tests.support.waiting import PATIENCE_SECONDS
from toolchain import plugin


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("bin"), api([pod("ml", 3000, on="k8s-node1")]))


def run(installed: Path, *arguments: str, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join((str(installed), str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    return subprocess.run(
        [installed / plugin.NAME, *arguments],
        cwd=folder,
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_modules_of_other_commands_are_not_imported(installed: Path) -> None:
    """The plugin starts kubectl before it imports the modules for the report, because imports take time."""
    code = "import sys, gpumem.cli; print(*(name for name in sys.modules if name.startswith('gpumem.')))"
    env = {"PYTHONPATH": str(installed / plugin.NAME)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    light = {"arguments", "cli", "paper", "report", "version"}
    assert {name.removeprefix("gpumem.") for name in done.stdout.split()} == light


def test_the_file_alone_answers(installed: Path) -> None:
    done = run(installed, "who", "-o", "json", "--context", "lab")
    assert (done.returncode, done.stderr) == (0, "")
    (node,) = json.loads(done.stdout)["nodes"]
    assert [each["name"] for each in node["devices"][0]["pods"]] == ["ml"]
    assert "--context=lab" in (installed / "calls").read_text()


def test_what_kubectl_refuses_is_one_sentence(installed: Path) -> None:
    done = run(installed, "who", "--context", "nobody")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "gpumem: error: context nobody does not exist\n")


def test_it_advises_by_the_clusters_ledger_and_says_what_a_stack_file_needs(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "use.csv").write_text("time,seat,mib\n60,llama-swap,5001\n")
    done = run(installed, "advise", "--from", str(tmp_path / "use.csv"))
    assert (done.returncode, done.stderr) == (3, "")
    assert "    llama-swap: {gpumem_mib: 5100}\n" in done.stdout
    done = run(installed, "advise", "--from", str(tmp_path / "use.csv"), "--stack", "prod")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gpumem: --stack needs the package gpu-tenancy (")


def test_it_proposes_a_stack_file_without_a_checkout(tmp_path: Path) -> None:
    alone = install(tmp_path, record_0000().api())
    done = run(alone, "init", "--stack", "mine", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "gpu-tenancy:residents:" in (tmp_path / "Pulumi.mine.yaml").read_text()
