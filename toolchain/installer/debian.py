"""Unpacks Debian's packages into a folder without installing them. apt downloads and verifies the packages."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from toolchain.installer.console import run
from toolchain.installer.errors import ToolchainError, UnavailableError
from toolchain.installer.tool import DebianPackages, Dependencies

APT = ("apt-get", "-o", "APT::Sandbox::User=root")
# The script finds libraries, fonts and openssl's configuration relative to its own folder, so that the folder can have
# any path.
STARTER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export PATH="$here/usr/bin:$PATH" LD_LIBRARY_PATH="{libraries}" FONTCONFIG_FILE="$here/fonts.conf"
[ ! -e "$here/{openssl}" ] || export OPENSSL_CONF="$here/{openssl}"
exec "$here/{program}" {arguments}"$@"
"""
OPENSSL_SETTINGS = "etc/ssl/openssl.cnf"
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


def unpack(recipe: DebianPackages, into: Path, log: Path) -> None:
    """Unpacks the packages into the folder, with a script or a link there for each program.

    Raises UnavailableError if apt does not have the packages.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise UnavailableError("this machine has no apt-get")
    try:
        _download(recipe, into, log)
    except ToolchainError as failed:
        raise UnavailableError(str(failed).splitlines()[0]) from None
    run("dpkg -x", ["sh", "-ec", 'for package in *.deb; do dpkg -x "$package" .; rm "$package"; done'], log, cwd=into)
    # Some packages have their libraries in lib, which is a link to usr/lib in an installed system.
    found = [file for folder in ("lib", "usr/lib") for file in into.glob(f"{folder}/**/*.so*")]
    folders = sorted({str(file.parent.relative_to(into)) for file in found})
    libraries = os.pathsep.join(f"$here/{folder}" for folder in folders)
    for program, pattern in recipe.programs.items():
        own = (file for file in into.glob(pattern) if file.resolve().is_relative_to(into.resolve()))
        file = next(own, into / pattern).relative_to(into)
        if recipe.dependencies is Dependencies.NONE:
            (into / program).symlink_to(file)
            continue
        starter = into / program
        starter.write_text(
            STARTER.format(libraries=libraries, program=file, arguments=recipe.arguments, openssl=OPENSSL_SETTINGS)
        )
        starter.chmod(0o755)
    (into / "fonts.conf").write_text(FONTS)


def _download(recipe: DebianPackages, into: Path, log: Path) -> None:
    """The machine's index of packages can be missing or old. Then apt downloads an index into a temporary folder."""
    with TemporaryDirectory() as scratch:
        for step in ("state/lists/partial", "cache/archives/partial"):
            (Path(scratch) / step).mkdir(parents=True)
        own = (*APT, "-o", f"Dir::State={scratch}/state", "-o", f"Dir::Cache={scratch}/cache")
        try:
            _download_from(APT, recipe, into, log)
        except (ToolchainError, UnavailableError):
            with suppress(ToolchainError):  # the next step reports what is missing
                run("apt-get update, into a temporary folder", [*own, "update", "-q"], log)
            _download_from(own, recipe, into, log)


def _download_from(apt: Sequence[str], recipe: DebianPackages, into: Path, log: Path) -> None:
    packages = list(recipe.packages)
    if recipe.dependencies is not Dependencies.NONE:
        packages += [package for package in _needed(apt, recipe) if package not in packages]
    run(f"apt-get download, {len(packages)} packages", [*apt, "download", "-q", *packages], log, cwd=into)


def _needed(apt: Sequence[str], recipe: DebianPackages) -> list[str]:
    installed = ("-o", "Dir::State::status=/dev/null") if recipe.dependencies is Dependencies.ALL else ()
    plan = [*apt, *installed, "install", "--simulate", "--no-install-recommends", *recipe.packages]
    done = subprocess.run(plan, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise UnavailableError(f"apt-get has no {recipe.packages[0]}: {said}")
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("Inst ")]
