"""Tests the installer without a network. Scripts replace `go` and `uv`."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.scripts import script, system_programs
from toolchain.installer.store import Store
from toolchain.installer.tool import GoBuild, ModuleFiles
from toolchain.installer.tools import GROUPS, InstallTarget, install_target, tools

LACKING = (
    "without chromium-headless-shell (this machine has no apt-get), these tests are skipped:"
    " the docs' website in a browser"
)
# A file of each folder that the installer copies from a module.
INSIDE = {"kueue": "Chart.yaml", "kubernetes": "yaml/v2/kinds.go"}
BUILT = ["pulumi-language-python", "pulumi", "pulumi-resource-kubernetes"]


@dataclass(frozen=True)
class Machine:
    folder: Path

    @property
    def env(self) -> Mapping[str, str]:
        closed = "http://127.0.0.1:9"
        path = [self.folder / "bin", self.folder / "system"]
        return {
            "PATH": os.pathsep.join(map(str, path)),
            "HOME": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "https_proxy": closed,
            "http_proxy": closed,
        }

    def builds(self) -> list[str]:
        calls = self.folder / "builds"
        return calls.read_text().split() if calls.exists() else []

    def run(self, checkout: Path, *groups: str, **env: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, str(checkout / "toolchain" / "install.py"), *groups],
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr


FAKE_GO = r"""
case "$1" in
mod)
    echo "{\"Dir\": \"@folder/modules/$4\"}" ;;
build)
    all="$*"
    while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
    echo "${out##*/}" >> @folder/builds
    printf '#!/bin/sh\necho "%s"\n' "$all" > "$out"
    chmod +x "$out" ;;
esac
"""

FAKE_UV = """
echo "$@" >> @folder/uv-calls
[ "$1" = venv ] || exit 0
for folder; do :; done
mkdir -p "$folder/bin"
touch "$folder/bin/python"
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    script(tmp_path / "bin" / "go", FAKE_GO.replace("@folder", str(tmp_path)))
    system_programs(tmp_path / "system")
    return Machine(tmp_path)


@pytest.fixture
def checkout(machine: Machine) -> Path:
    checkout = machine.folder / "checkout"
    shutil.copytree(ROOT / "toolchain", checkout / "toolchain", ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / file, checkout)
    uv, *others = tools(install_target(checkout), "preview")
    entry = Store(machine.folder / "cache" / "gpu-tenancy", checkout).entry(uv)
    script(entry / "uv", FAKE_UV.replace("@folder", str(machine.folder)))
    for wanted in (files for tool in others for recipe in tool.recipes for files in module_files(recipe)):
        for source in wanted.files:
            file = machine.folder / "modules" / f"{wanted.path}@v{wanted.module.version(wanted.path)}" / source
            file = file / INSIDE[file.name] if file.name in INSIDE else file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    return checkout


def module_files(recipe: object) -> list[ModuleFiles]:
    found = (recipe.embeds, recipe.changed and recipe.changed.files) if isinstance(recipe, GoBuild) else (recipe,)
    return [files for files in found if isinstance(files, ModuleFiles)]


def test_a_first_run_installs_everything_and_reports_how_and_why(machine: Machine, checkout: Path) -> None:
    code, said, complaint = machine.run(checkout)
    assert (code, complaint) == (0, "")
    assert machine.builds() == BUILT
    first, *others = said.splitlines()
    assert re.match(
        r"toolchain: gets pulumi, .*, kueue-chart: .* a build of all of them about \d+ min on \d+ cores$", first
    )
    assert not any(line.startswith("uv ") for line in others), "uv is in the cache"
    assert "pulumi 3.259.0: building with Go; github.com cannot be reached (Connection refused)" in said
    assert said.splitlines()[-1] == "toolchain: preview ready"
    shelf = checkout / ".toolchain"
    for link in (
        "bin/pulumi",
        "bin/pulumi-language-python",
        "bin/pulumi-language-python-exec",
        "pulumi-home/plugins/resource-kubernetes-v4.27.0/pulumi-resource-kubernetes",
        "charts/kueue/Chart.yaml",
    ):
        assert (shelf / link).exists(), link
    # If the path of Pulumi's log folder is a file, Pulumi writes no logs.
    assert (shelf / "pulumi-home" / "logs").is_file()
    assert "pip sync --require-hashes --python " in (machine.folder / "uv-calls").read_text()


def test_a_second_run_does_nothing(machine: Machine, checkout: Path) -> None:
    machine.run(checkout)
    (machine.folder / "bin" / "go").unlink()
    asked = (machine.folder / "uv-calls").read_text()
    assert machine.run(checkout) == (0, "toolchain: preview ready\n", "")
    assert (machine.folder / "uv-calls").read_text() == asked


@pytest.mark.parametrize("system", ["linux", "darwin"])
@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_every_tool_is_defined_on_every_platform(system: str, architecture: str) -> None:
    target = InstallTarget(ROOT, system, architecture)
    found = [tool for group in GROUPS for tool in tools(target, group)]
    assert len({tool.name for tool in found}) == len({(tool.name, tool.key) for tool in found})
    for release in (tool.release for tool in found if tool.release):
        assert system in release.url
        assert architecture in release.url.replace("x64", "amd64")


def test_a_machine_without_a_browser_goes_on_without_it(machine: Machine, checkout: Path) -> None:
    code, said, complaint = machine.run(checkout, "browser")
    assert (code, complaint) == (0, "")
    assert LACKING in said.splitlines()
    assert not (checkout / ".toolchain" / "bin" / "chromium-headless-shell").exists()


def test_a_program_that_cannot_be_had_fails_in_ci(machine: Machine, checkout: Path) -> None:
    code, _, complaint = machine.run(checkout, "browser", CI="true")
    assert code == 1
    assert complaint.startswith(f"toolchain: {LACKING}\nCI runs every test")
