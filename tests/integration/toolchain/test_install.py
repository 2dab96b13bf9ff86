"""Tests the installer without a network. Scripts replace `go` and `uv`."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.scripts import script, system_programs
from tests.support.waiting import PATIENCE_SECONDS, eventually
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
    held: list[int] = field(default_factory=list)

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

    @property
    def entries(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "cache" / "gpu-tenancy").iterdir() if path.is_dir())

    def builds(self) -> list[str]:
        calls = self.folder / "builds"
        return calls.read_text().split() if calls.exists() else []

    def start(self, checkout: Path, *groups: str, **env: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, str(checkout / "toolchain" / "install.py"), *groups],
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, checkout: Path, *groups: str, **env: str) -> tuple[int, str, str]:
        with self.start(checkout, *groups, **env) as process:
            said, complaint = process.communicate(timeout=PATIENCE_SECONDS)
        return process.returncode, said, complaint

    def hold_builds(self) -> None:
        os.mkfifo(self.folder / "started")
        os.mkfifo(self.folder / "go-on")

    def build_started(self) -> int:
        """The shell that builds, once it waits in `cat`: a shell that is about to start a program forgets a SIGINT."""
        build = int((self.folder / "started").read_text())
        # A FIFO without a reader refuses this. While it is open, `cat` waits.
        self.held.append(eventually(lambda: os.open(self.folder / "go-on", os.O_WRONLY | os.O_NONBLOCK)))
        return build


FAKE_GO = r"""
case "$1" in
mod)
    echo "{\"Dir\": \"@folder/modules/$4\"}" ;;
build)
    all="$*"
    while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
    echo "${out##*/}" >> @folder/builds
    [ -p @folder/started ] && { echo $$ > @folder/started; cat @folder/go-on; }
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
def machine(tmp_path: Path) -> Iterator[Machine]:
    script(tmp_path / "bin" / "go", FAKE_GO.replace("@folder", str(tmp_path)))
    system_programs(tmp_path / "system")
    machine = Machine(tmp_path)
    yield machine
    for descriptor in machine.held:
        os.close(descriptor)


@pytest.fixture
def checkout(machine: Machine) -> Path:
    return clone(machine, "checkout")


def clone(machine: Machine, name: str) -> Path:
    checkout = machine.folder / name
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


def is_running(pid: int) -> bool:
    """A process that has ended keeps its number until its new parent has waited for it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and " Z " in stat.read_text())


def test_an_interrupted_run_stops_its_build_keeps_nothing_half_and_can_be_repeated(
    machine: Machine, checkout: Path
) -> None:
    machine.hold_builds()
    with machine.start(checkout) as process:
        build = machine.build_started()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, complaint = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert complaint == "\ntoolchain: interrupted; what was finished is kept, run it again to go on\n"
    eventually(lambda: not is_running(build))
    assert [entry for entry in machine.entries if not entry.startswith("uv-")] == ["logs"]
    (machine.folder / "started").unlink()
    assert machine.run(checkout)[0] == 0


def test_without_go_and_downloads_one_message_names_the_remedy(machine: Machine, checkout: Path) -> None:
    (machine.folder / "bin" / "go").unlink()
    code, _, complaint = machine.run(checkout)
    assert code == 1
    assert complaint.startswith("toolchain: pulumi 3.259.0 cannot be had: there is no Go to build it; install Go")


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
