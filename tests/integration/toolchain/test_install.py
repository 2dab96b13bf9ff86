"""The installer as a user runs it, in a copy of the checkout whose tools are scripts; nothing leaves the machine."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.integration.toolchain.conftest import script, system_programs
from tests.support.paths import ROOT
from toolchain.installer.modules import h1
from toolchain.installer.tool import GoBuild, ModuleFiles, Tool
from toolchain.installer.tools import GROUPS, Site, site_of

BUILT = ["pulumi-language-python", "pulumi", "pulumi-resource-kubernetes"]


@dataclass(frozen=True)
class Machine:
    """A user's machine: a home with a cache, and a PATH with a `go`, a `uv` and no way out."""

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

    @property
    def entries(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "cache" / "gpu-tenancy").iterdir() if path.is_dir())

    def builds(self) -> list[str]:
        """The programs that `go build` was asked for, in order."""
        calls = self.folder / "builds"
        return calls.read_text().split() if calls.exists() else []

    def start(self, checkout: Path, *groups: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, str(checkout / "toolchain" / "install.py"), *groups],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, checkout: Path, *groups: str) -> tuple[int, str, str]:
        with self.start(checkout, *groups) as process:
            said, complaint = process.communicate(timeout=60)
        return process.returncode, said, complaint

    def hold_builds(self) -> None:
        """From now on `go build` waits: until build_started() has seen it and let_go() is called."""
        os.mkfifo(self.folder / "started")
        os.mkfifo(self.folder / "go-on")

    def build_started(self) -> int:
        """Waits until a build has begun; gives its process."""
        return int((self.folder / "started").read_text())

    def let_go(self) -> None:
        with (self.folder / "go-on").open("w"):
            (self.folder / "started").unlink()
            (self.folder / "go-on").unlink()


FAKE_GO = r"""
case "$1" in
mod)
    echo "{\"Zip\": \"@folder/modules/$(echo "$4" | tr / _).zip\"}" ;;
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
case "$1" in
--version) echo uv 0.99.0 ;;
venv) for folder; do :; done; mkdir -p "$folder/bin"; touch "$folder/bin/python" ;;
pip) ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    script(tmp_path / "bin" / "go", FAKE_GO.replace("@folder", str(tmp_path)))
    script(tmp_path / "bin" / "uv", FAKE_UV.replace("@folder", str(tmp_path)))
    system_programs(tmp_path / "system")
    return Machine(tmp_path)


def clone(machine: Machine, name: str) -> Path:
    """A checkout with the installer and the pins, the Go modules' checksums being those of small stand-ins."""
    checkout = machine.folder / name
    shutil.copytree(ROOT / "toolchain", checkout / "toolchain", ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / file, checkout)
    for tool in GROUPS["preview"](site_of(checkout)):
        for wanted in module_files(tool):
            stand_in(wanted, machine.folder / "modules")
    return checkout


def module_files(tool: Tool) -> Iterator[ModuleFiles]:
    for recipe in tool.recipes:
        if isinstance(recipe, GoBuild) and recipe.embeds:
            yield recipe.embeds
        elif isinstance(recipe, ModuleFiles):
            yield recipe


def stand_in(wanted: ModuleFiles, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    name = f"{wanted.path}@{wanted.module.version(wanted.path)}"
    file = folder / f"{name.replace('/', '_')}.zip"
    with ZipFile(file, "w") as archive:
        for source in wanted.files:
            archive.writestr(f"{name}/{source}{'Chart.yaml' if source.endswith('/') else ''}", "stand-in\n")
    go_sum = wanted.module.folder / "go.sum"
    go_sum.write_text(go_sum.read_text().replace(wanted.module.h1(wanted.path), h1(file)))


def test_a_first_run_installs_everything_and_says_how_and_why(machine: Machine) -> None:
    checkout = clone(machine, "checkout")
    code, said, complaint = machine.run(checkout)
    assert (code, complaint) == (0, "")
    assert machine.builds() == BUILT
    assert said.splitlines()[0] == f"uv 0.13.8: from PATH: {machine.folder}/bin/uv, 0.99.0"
    assert "pulumi 3.259.0: building with Go; not on PATH; github.com cannot be reached (Connection refused)" in said
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
    assert (shelf / "pulumi-home" / "logs").is_file()  # where Pulumi then keeps none
    assert "pip sync --require-hashes --python " in (machine.folder / "uv-calls").read_text()


def test_a_second_run_does_nothing_and_takes_less_than_a_second(machine: Machine) -> None:
    checkout = clone(machine, "checkout")
    machine.run(checkout)
    (machine.folder / "bin" / "go").unlink()
    asked = (machine.folder / "uv-calls").read_text()
    took_seconds = []
    for _ in range(3):
        started = time.monotonic()
        assert machine.run(checkout) == (0, "toolchain: preview ready\n", "")
        took_seconds.append(time.monotonic() - started)
    assert min(took_seconds) < 1  # a busy machine may hold up one
    assert (machine.folder / "uv-calls").read_text() == asked


def test_a_tool_from_path_that_went_away_is_replaced(machine: Machine) -> None:
    checkout = clone(machine, "checkout")
    machine.run(checkout)
    (machine.folder / "bin" / "uv").rename(machine.folder / "system" / "uv")
    code, said, _ = machine.run(checkout)
    assert code == 0
    assert said.splitlines()[0] == f"uv 0.13.8: from PATH: {machine.folder}/system/uv, 0.99.0"


def test_a_second_clone_is_ready_at_once(machine: Machine) -> None:
    machine.run(clone(machine, "first"))
    second = clone(machine, "second")
    code, said, _ = machine.run(second)
    assert code == 0
    assert machine.builds() == BUILT
    assert said.count(": in the cache\n") == 3
    assert (second / ".toolchain" / "bin" / "pulumi").exists()


def test_a_changed_lock_brings_the_environment_up_to_date_and_nothing_else(machine: Machine) -> None:
    checkout = clone(machine, "checkout")
    machine.run(checkout)
    with (checkout / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    code, said, _ = machine.run(checkout)
    assert code == 0
    assert said.splitlines()[0] == ".venv: from requirements.lock, each package proven by its hash"
    assert (machine.folder / "uv-calls").read_text().count("pip sync") == 2
    assert machine.builds() == BUILT


def test_an_interrupted_run_stops_its_build_keeps_nothing_half_and_can_be_repeated(machine: Machine) -> None:
    checkout = clone(machine, "checkout")
    machine.hold_builds()
    with machine.start(checkout) as process:
        build = machine.build_started()
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert complaint == "\ntoolchain: interrupted; what was finished is kept, run it again to go on\n"
    with pytest.raises(ProcessLookupError):
        os.kill(build, 0)
    assert machine.entries == ["logs"]
    (machine.folder / "started").unlink()
    assert machine.run(checkout)[0] == 0


def test_a_killed_run_can_be_repeated(machine: Machine) -> None:
    checkout = clone(machine, "checkout")
    machine.hold_builds()
    with machine.start(checkout) as process:
        machine.build_started()
        process.kill()
    machine.let_go()
    code, _, complaint = machine.run(checkout)
    assert (code, complaint) == (0, "")
    assert not [entry for entry in machine.entries if "partial" in entry]


def test_of_two_runs_at_once_one_builds_and_the_other_waits(machine: Machine) -> None:
    checkout = clone(machine, "checkout")
    machine.hold_builds()
    with machine.start(checkout) as first:
        machine.build_started()
        with machine.start(checkout) as second:
            assert second.stdout is not None
            waiting = next(line for line in second.stdout if "pulumi" in line)
            machine.let_go()
            said, complaint = second.communicate(timeout=60)
        first.communicate(timeout=60)
    assert waiting == "pulumi 3.259.0: another run is installing it; waiting\n"
    assert (first.returncode, second.returncode, complaint) == (0, 0, "")
    assert "pulumi 3.259.0: in the cache" in said
    assert sorted(machine.builds()) == sorted(BUILT)


def test_without_go_and_downloads_one_message_says_what_to_do(machine: Machine) -> None:
    (machine.folder / "bin" / "go").unlink()
    code, _, complaint = machine.run(clone(machine, "checkout"))
    assert code == 1
    assert complaint == (
        "toolchain: pulumi 3.259.0 cannot be had: not on PATH; github.com cannot be reached (Connection refused);"
        " and there is no Go to build it.\n"
        "Install Go 1.26.0 or newer (https://go.dev/dl), or let this machine download releases.\n"
    )


def test_a_group_that_does_not_exist_is_named(machine: Machine) -> None:
    code, _, complaint = machine.run(clone(machine, "checkout"), "previews")
    assert code == 2
    assert "no group previews; there are python, preview, cluster, node, lint" in complaint


@pytest.mark.parametrize("system", ["linux", "darwin"])
@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_every_tool_is_defined_on_every_platform(system: str, architecture: str) -> None:
    site = Site(ROOT, system, architecture)
    groups = [group for group in GROUPS if (group, system) != ("node", "darwin")]
    tools = [tool for group in groups for tool in GROUPS[group](site)]
    assert len({tool.name for tool in tools}) == len({(tool.name, tool.key) for tool in tools})  # uv is in two groups
    for release in (tool.release for tool in tools if tool.release):
        assert system in release.url
        assert architecture in release.url.replace("x64", "amd64")
