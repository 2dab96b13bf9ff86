"""Unpacks Debian's packages into a folder without installing them. apt downloads and verifies the packages."""

import os
import shutil
import subprocess
from pathlib import Path

from toolchain.installer.console import Console
from toolchain.installer.errors import UnavailableError
from toolchain.installer.tool import DebianPackages

APT = ("apt-get", "-o", "APT::Sandbox::User=root")
# The script finds libraries and fonts relative to its own folder, so that the folder may have any path.
STARTER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="{libraries}" FONTCONFIG_FILE="$here/fonts.conf"
exec "$here/{program}" "$@"
"""
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir>
  <dir prefix="relative">usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
  <alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""


def unpack(recipe: DebianPackages, into: Path, console: Console, log: Path) -> None:
    """Unpacks the packages into the folder, and writes a script there that starts the program.

    Raises UnavailableError if apt does not have the packages.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise UnavailableError("this machine has no apt-get")
    missing = _missing(recipe.packages)
    console.run(f"apt-get download, {len(missing)} packages", [*APT, "download", "-q", *missing], log, cwd=into)
    console.run(
        "dpkg -x", ["sh", "-ec", 'for package in *.deb; do dpkg -x "$package" .; rm "$package"; done'], log, cwd=into
    )
    folders = sorted({str(file.parent.relative_to(into)) for file in into.glob("usr/lib/**/*.so*")})
    starter = into / recipe.program
    starter.write_text(
        STARTER.format(libraries=os.pathsep.join(f"$here/{folder}" for folder in folders), program=recipe.file)
    )
    starter.chmod(0o755)
    (into / "fonts.conf").write_text(FONTS)


def _missing(packages: tuple[str, ...]) -> list[str]:
    """Returns the packages and their dependencies, except those that this machine has."""
    plan = [*APT, "install", "--simulate", "--no-install-recommends", *packages]
    done = subprocess.run(plan, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise UnavailableError(f"apt-get has no {packages[0]}: {said} (after a while: apt-get update)")
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("Inst ")]
