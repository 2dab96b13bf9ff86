"""Types the commands of the docs' pages, in an empty folder, with a clone of this checkout."""

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.workspace import Outcome, Workspace, workspace
from toolchain.cluster.paths import TOOLCHAIN

CLONE = "git clone <this repository> gpu-tenancy\n"
INSTALLED = ("bin", "charts", "pulumi-home")
CACHE = {"PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip")}


@pytest.fixture
def empty(tmp_path: Path) -> Workspace:
    folder = tmp_path / "empty"
    folder.mkdir()
    space = workspace(tmp_path)
    ours = {"PULUMI_HOME", "PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_IGNORE_AMBIENT_PLUGINS"}
    env = {name: value for name, value in space.env.items() if name not in ours}
    return Workspace(folder, {**env, **CACHE, "PATH": os.environ["PATH"]})


def clone(into: Path) -> None:
    """Copies the files that git knows or would add. A clone by git would lack what is not committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, into / name)
    (into / ".toolchain").mkdir()
    for name in INSTALLED:
        (into / ".toolchain" / name).symlink_to(ROOT / ".toolchain" / name)
    (into / ".venv").symlink_to(ROOT / ".venv")


def commands(page: str) -> list[str]:
    """Returns the blocks of commands on a page."""
    return re.findall(r"^```sh\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def type_in(empty: Workspace, *blocks: str, **env: str) -> Outcome:
    text = "".join(blocks)
    assert CLONE in text
    clone(empty.folder / "gpu-tenancy")
    # The clone has links to the installed tools, so `make toolchain` is not run again.
    text = text.replace(CLONE, "").replace("make -C", "make --no-print-directory -o toolchain -C")
    outcome = empty.run("bash", "-euxc", text, cwd=empty.folder, **env)
    if "Failed to establish a new connection" in outcome.text or "NameResolutionError" in outcome.text:
        pytest.skip("NO PACKAGE INDEX can be reached; the commands of the docs are NOT typed")
    return outcome


def test_the_package_page_leads_from_an_empty_folder_to_an_accepted_preview(empty: Workspace) -> None:
    outcome = type_in(empty, *commands("docs/reference/package/README.md"))
    assert outcome.code == 0, outcome.text
    for said in ("gputenancy:index:Platform", "✅ gpu-tenancy", "gpu: 2000 MiB fit now"):
        assert said in outcome.text, said


def test_the_languages_page_leads_from_an_empty_folder_to_an_accepted_preview(empty: Workspace) -> None:
    if not list((TOOLCHAIN / "pulumi-home" / "plugins").glob("language-yaml-v*")):
        pytest.skip("pulumi-language-yaml is not installed: the commands of the page are NOT typed (make integration)")
    clone_, add, program = commands("docs/reference/package/languages.md")
    try:
        outcome = type_in(empty, clone_, commands("docs/reference/package/README.md")[1], add, program)
    finally:
        end_hosts(empty.folder.parent)
    assert outcome.code == 0, outcome.text
    for said in ("kubernetes:apps/v1:Deployment", "✅ gpu-tenancy"):
        assert said in outcome.text, said


def end_hosts(home: Path) -> None:
    """Ends the language hosts that Pulumi leaves running after a program with a plugin (languages.md)."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGTERM)
