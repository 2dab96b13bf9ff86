"""Reads the pinned versions from go.mod files, from pyproject.toml and from requirements files."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from toolchain.installer.errors import ToolchainError


@dataclass(frozen=True)
class Module:
    """A folder with a go.mod file and a go.sum file."""

    folder: Path = field(repr=False)

    def sources(self, package: str) -> list[Path]:
        """Returns the files that a build of the package reads: go.mod, go.sum, and the sources of a local package."""
        code = sorted((self.folder / package).glob("*.[gs]*")) if package.startswith(".") else []
        return sorted({self.folder / "go.mod", self.folder / "go.sum", *code})

    def version(self, path: str) -> str:
        """Returns the version of the module `path` that go.mod requires, for example 1.36.3, without its `v`."""
        return find_pin(self.folder / "go.mod", rf"^(?:require |\t){re.escape(path)} v(\S+)", path)

    def h1(self, path: str) -> str:
        """Returns the checksum of the module's files from go.sum. Checksums begin with `h1:`."""
        return find_pin(self.folder / "go.sum", rf"^{re.escape(path)} v{re.escape(self.version(path))} (h1:\S+)$", path)

    def tools(self, *programs: str) -> dict[str, str]:
        """Maps each program to its package, from the `tool` lines of go.mod."""
        return {
            program: find_pin(
                self.folder / "go.mod", rf"^(?:tool |\t)(\S+/{program}(?:/v\d+)?)$", f"the tool {program}"
            )
            for program in programs
        }


def python_pin(file: Path, package: str) -> str:
    """Returns the version of a Python package that the file pins, for example 4.27.0."""
    return find_pin(file, rf'^\W*{re.escape(package)}==([^\s"]+)', package)


def find_pin(file: Path, pattern: str, what: str) -> str:
    match = re.search(pattern, file.read_text(), re.MULTILINE)
    if match is None:
        raise ToolchainError(f"{file} does not pin {what}")
    return match[1]
