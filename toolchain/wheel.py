"""Builds the wheel, in which all our packages are below the import name gpu_tenancy.

`python -m toolchain.wheel FOLDER` writes the wheel into the folder. `pip wheel .` also builds this wheel, because
pyproject.toml names the build command of this module.

In the wheel, every import of our own packages begins with the prefix `gpu_tenancy.`. The build of the agents' archive
removes the prefix gpu_tenancy. from imports (components/base/zipapp.py).
"""

import ast
import io
import os
import shutil
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from setuptools import build_meta
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[1]
NAME = "gpu_tenancy"
PACKAGES = ("agents", "components", "gpumem", "policy", "stacks", "tenancy")
# `python -m stacks` works only in a checkout. Of the policy pack, the wheel contains only the rules, for `--stack` of
# kubectl gpumem: Pulumi needs the pack as a folder (toolchain/pack.py).
LEFT_OUT = ("policy/PulumiPolicy.yaml", "policy/__main__.py", "stacks/__main__.py")
# The wheel also contains two other things: the lock file with the hashes of NVML's bindings, and Kueue's chart. With
# Kueue's chart in the wheel, a preview needs no network.
LOCK = Path("requirements.lock")
CHART = Path(".toolchain") / "charts" / "kueue"
_SOURCES = (NAME, *PACKAGES, "toolchain", ".toolchain", "pyproject.toml", "README.md", "LICENSE", str(LOCK))


class WheelError(Exception):
    """Raised if the wheel cannot be built. The message of the error is for the operator."""


class BuildPy(build_py):  # type: ignore[misc] # setuptools has no types
    """Extends setuptools' build command. The build command also copies our other packages into gpu_tenancy/."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            fill_package(Path(self.build_lib) / NAME, Path())


def fill_package(package: Path, root: Path) -> None:
    """Copies files from the checkout `root` into the built package. Raises WheelError."""
    chart = root / CHART
    if not chart.is_dir():
        raise WheelError(f"{CHART} is not there; run make toolchain")
    for name in PACKAGES:
        shutil.copytree(root / name, package / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for name in LEFT_OUT:
        (package / name).unlink(missing_ok=True)
    for path in package.rglob("*.py"):
        source = path.read_bytes()
        path.write_bytes(move_imports(source, path))
    shutil.copy(root / LOCK, package)
    shutil.copytree(chart, package / "charts" / CHART.name, dirs_exist_ok=True)


def move_imports(source: bytes, path: Path) -> bytes:
    """Returns the source with the prefix gpu_tenancy in each import of our packages.

    If the removal of the prefix does not restore the original source, raises WheelError.
    """
    lines = source.splitlines(keepends=True)
    for line, column in sorted(_imports(source, path), reverse=True):
        lines[line] = lines[line][:column] + f"{NAME}.".encode() + lines[line][column:]
    result = b"".join(lines)
    if result.replace(f"{NAME}.".encode(), b"") != source.replace(f"{NAME}.".encode(), b""):
        raise WheelError(f"{path}: its imports cannot be moved below {NAME}")
    return result


def _imports(source: bytes, path: Path) -> list[tuple[int, int]]:
    """Returns the line and the column of the package's name in each import of our packages.

    Lines and columns are counted from 0.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            found.append((node.lineno - 1, node.col_offset + len("from ")))
        elif isinstance(node, ast.Import) and any(each.name.partition(".")[0] in PACKAGES for each in node.names):
            raise WheelError(f"{path}:{node.lineno}: write `from … import …`, which the wheel can move")
    return found


def build(folder: Path, root: Path = ROOT) -> Path:
    """Writes the wheel into this folder and returns its path. The build of the wheel writes nothing into the
    checkout."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        for name in _SOURCES:
            (Path(scratch) / name).symlink_to(root / name)
        os.chdir(scratch)
        try:
            with redirect_stdout(io.StringIO()):  # setuptools prints each file
                made: str = build_meta.build_wheel(str(folder))
            return folder / made
        finally:
            os.chdir(before)


if __name__ == "__main__":
    try:
        print(build(Path(sys.argv[1])))
    except WheelError as error:
        sys.exit(str(error))
