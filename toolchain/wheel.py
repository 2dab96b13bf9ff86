"""The wheel: our packages below one import name, gpu_tenancy. `python -m toolchain.wheel FOLDER` writes it there, and
so does `pip wheel .`, by the command that pyproject.toml names.

The wheel has the checkout's source with `gpu_tenancy.` before our packages in each import. The agents' archive is built
with the prefix removed again (components/base/zipapp.py).
"""

import ast
import os
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import build_meta
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[1]
NAME = "gpu_tenancy"
PACKAGES = ("agents", "components", "stacks", "tenancy")
# The command line of a checkout, of no use to other programs.
LEFT_OUT = ("stacks/__main__.py", "stacks/cluster.py", "stacks/commands.py")
# Copied unchanged: the hashes of NVML's bindings, and Kueue's chart for previews without a network.
LOCK = Path("requirements.lock")
CHART = Path(".toolchain") / "charts" / "kueue"
_SOURCES = (NAME, *PACKAGES, "toolchain", ".toolchain", "pyproject.toml", "README.md", "LICENSE", str(LOCK))


class WheelError(Exception):
    """The wheel cannot be built; the message is a sentence."""


class BuildPy(build_py):  # type: ignore[misc] # setuptools has no types
    """setuptools' own command, which also moves our other packages into gpu_tenancy/."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            fill_package(Path(self.build_lib) / NAME, Path())


def fill_package(package: Path, root: Path) -> None:
    """Fills the built package from the checkout `root`. Raises WheelError."""
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
    """Returns the source with our packages imported from gpu_tenancy. Raises WheelError if that cannot be undone."""
    lines = source.splitlines(keepends=True)
    for line, column in sorted(_imports(source, path), reverse=True):
        lines[line] = lines[line][:column] + f"{NAME}.".encode() + lines[line][column:]
    result = b"".join(lines)
    if result.replace(f"{NAME}.".encode(), b"") != source.replace(f"{NAME}.".encode(), b""):
        raise WheelError(f"{path}: its imports cannot be moved below {NAME}")
    return result


def _imports(source: bytes, path: Path) -> list[tuple[int, int]]:
    """Returns the line and column, from 0, of each of our packages' names in imports."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            found.append((node.lineno - 1, node.col_offset + len("from ")))
        elif isinstance(node, ast.Import) and any(each.name.partition(".")[0] in PACKAGES for each in node.names):
            raise WheelError(f"{path}:{node.lineno}: write `from … import …`, which the wheel can move")
    return found


def build(folder: Path, root: Path = ROOT) -> Path:
    """The wheel, written into this folder; the checkout stays as it is."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        for name in _SOURCES:
            (Path(scratch) / name).symlink_to(root / name)
        os.chdir(scratch)
        try:
            made: str = build_meta.build_wheel(str(folder))
            return folder / made
        finally:
            os.chdir(before)


if __name__ == "__main__":
    try:
        print(f"{build(Path(sys.argv[1]))}: pip install it; docs/reference/package/README.md says the rest")
    except WheelError as error:
        sys.exit(str(error))
