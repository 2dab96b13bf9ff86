"""Tests that the installer unpacks Debian's packages without root. Scripts replace `apt-get` and `dpkg`."""

import io
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.scripts import script, system_programs
from toolchain.installer import debian
from toolchain.installer.console import Console
from toolchain.installer.errors import UnavailableError
from toolchain.installer.tool import DebianPackages

RECIPE = DebianPackages(packages=("browser", "fonts"), file="usr/lib/browser/run", program="browser")
APT = """case "$*" in
  *--simulate*browser*fonts*) printf 'Inst libx (1)\\nConf libx (1)\\nInst browser (2)\\n';;
  *download*libx*browser*) touch libx_1.deb browser_2.deb;;
  *) exit 1;;
esac
"""
DPKG = """mkdir -p usr/lib/browser usr/lib/x86
touch usr/lib/x86/libx.so.1
printf '#!/bin/sh\\necho "$1 $LD_LIBRARY_PATH"\\n' > usr/lib/browser/run
chmod +x usr/lib/browser/run
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script(tmp_path / "bin" / "apt-get", APT)
    script(tmp_path / "bin" / "dpkg", DPKG)
    system_programs(tmp_path / "system", "rm", "printf", "dirname", "readlink")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), str(tmp_path / "system")]))
    return tmp_path


def unpack(machine: Path) -> Path:
    folder = machine / "entry"
    folder.mkdir()
    debian.unpack(RECIPE, folder, Console(io.StringIO()), machine / "log")
    return folder


def test_the_program_finds_its_libraries_where_its_folder_is_now(machine: Path) -> None:
    folder = unpack(machine).rename(machine / "moved")
    done = subprocess.run([folder / "browser", "hello"], capture_output=True, text=True, check=True)
    assert done.stdout == f"hello {folder}/usr/lib/x86\n"
    assert [*folder.glob("*.deb")] == []


def test_a_machine_without_the_packages_reports_it(machine: Path) -> None:
    script(machine / "bin" / "apt-get", "echo 'E: Unable to locate package browser' >&2\nexit 100\n")
    with pytest.raises(UnavailableError, match=r"apt-get has no browser: E: Unable to locate package browser"):
        unpack(machine)


def test_a_machine_without_apt_reports_it(machine: Path) -> None:
    (machine / "bin" / "apt-get").unlink()
    with pytest.raises(UnavailableError, match="no apt-get"):
        unpack(machine)
