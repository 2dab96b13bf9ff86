"""Tests that the installer unpacks Debian's packages without root. Scripts replace `apt-get` and `dpkg`."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.scripts import script, system_programs
from toolchain.installer import debian
from toolchain.installer.errors import UnavailableError
from toolchain.installer.tool import DebianPackages

RECIPE = DebianPackages(packages=("browser", "fonts"), programs={"browser": "usr/lib/*/run"})
APT = """case "$*" in
  *--simulate*browser*fonts*) printf 'Inst libx (1)\\nConf libx (1)\\nInst browser (2)\\n';;
  *download*browser*fonts*libx*) touch libx_1.deb browser_2.deb;;
  *) exit 1;;
esac
"""
DPKG = """mkdir -p usr/lib/browser usr/lib/x86 lib/x86
touch usr/lib/x86/libx.so.1 lib/x86/liby.so.1
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


def unpack(machine: Path, recipe: DebianPackages = RECIPE) -> Path:
    folder = machine / "entry"
    folder.mkdir()
    debian.unpack(recipe, folder, machine / "log")
    return folder


def test_the_program_finds_its_libraries_where_its_folder_is_now(machine: Path) -> None:
    folder = unpack(machine).rename(machine / "moved")
    done = subprocess.run([folder / "browser", "hello"], capture_output=True, text=True, check=True)
    assert done.stdout == f"hello {folder}/lib/x86:{folder}/usr/lib/x86\n"
    assert [*folder.glob("*.deb")] == []


def test_the_programs_own_arguments_come_before_the_users(machine: Path) -> None:
    recipe = replace(RECIPE, programs={"cc": "usr/lib/browser/run"}, arguments='--sysroot="$here" ')
    folder = unpack(machine, recipe)
    done = subprocess.run([folder / "cc", "file.c"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"--sysroot={folder} ")


def test_a_machine_without_apt_reports_it(machine: Path) -> None:
    (machine / "bin" / "apt-get").unlink()
    with pytest.raises(UnavailableError, match="no apt-get"):
        unpack(machine)
