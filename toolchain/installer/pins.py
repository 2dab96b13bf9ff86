"""Reads the versions from where they live: the go.mod files next to this package, and pyproject.toml."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from toolchain.installer.errors import ToolchainError


@dataclass(frozen=True)
class Module:
    """A folder with a go.mod and go.sum pair."""

    folder: Path = field(repr=False)

    def sources(self, package: str) -> list[Path]:
        """The files that a build depends on: the pair, and the files of a package that is in the folder."""
        code = sorted((self.folder / package).glob("*.[gs]*")) if package.startswith(".") else []
        return sorted({self.folder / "go.mod", self.folder / "go.sum", *code})

    @property
    def go(self) -> str:
        """The oldest Go that builds it: 1.26.0."""
        return find(self.folder / "go.mod", r"^go (\S+)$", "a Go version")

    def version(self, path: str) -> str:
        """The required version of the module `path`, with its leading v: v1.36.3."""
        return find(self.folder / "go.mod", rf"^(?:require |\t){re.escape(path)} (v\S+)", path)

    def h1(self, path: str) -> str:
        """The checksum of the module's files, as go.sum writes it: h1:mPNzr3..."""
        return find(self.folder / "go.sum", rf"^{re.escape(path)} {re.escape(self.version(path))} (h1:\S+)$", path)

    def tools(self, *programs: str) -> dict[str, str]:
        """The packages of these programs, from the `tool` lines."""
        return {
            program: find(self.folder / "go.mod", rf"^(?:tool |\t)(\S+/{program}(?:/v\d+)?)$", f"the tool {program}")
            for program in programs
        }


def python_pin(file: Path, package: str) -> str:
    """The exact version that pyproject.toml or a requirements file pins a Python package to: 4.27.0."""
    return find(file, rf'^\W*{re.escape(package)}==([^\s"]+)', package)


def find(file: Path, pattern: str, what: str) -> str:
    match = re.search(pattern, file.read_text(), re.MULTILINE)
    if match is None:
        raise ToolchainError(f"{file} does not pin {what}")
    return match[1]
