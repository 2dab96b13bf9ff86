"""Reads the versions from where they live: the go.mod files next to this package and pyproject.toml."""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from toolchain.installer.errors import ToolchainError


@dataclass(frozen=True)
class Module:
    """A folder with a go.mod and go.sum pair."""

    folder: Path = field(repr=False)

    def sources(self, package: str) -> list[Path]:
        """Everything here that a build depends on: the pair, and the package's files if it is one of the folder's."""
        code: list[Path] = []
        if package.startswith("."):
            code = [file for suffix in ("*.go", "*.s") for file in (self.folder / package).glob(suffix)]
        return [self.folder / "go.mod", self.folder / "go.sum", *sorted(code)]

    @property
    def go(self) -> str:
        """The oldest Go that builds it: 1.26.0."""
        return self._find("go.mod", r"^go (\S+)$", "a Go version")

    def version(self, path: str) -> str:
        """The required version of the module `path`, with its leading v: v1.36.3."""
        return self._find("go.mod", rf"^(?:require |\t){re.escape(path)} (v\S+)", path)

    def h1(self, path: str) -> str:
        """The checksum of the module's files, as go.sum writes it: h1:mPNzr3..."""
        return self._find("go.sum", rf"^{re.escape(path)} {re.escape(self.version(path))} (h1:\S+)$", path)

    def _find(self, name: str, pattern: str, path: str) -> str:
        file = self.folder / name
        match = re.search(pattern, file.read_text(), re.MULTILINE)
        if match is None:
            raise ToolchainError(f"{file} does not pin {path}")
        return match[1]


def python_pin(pyproject: Path, package: str) -> str:
    """The exact version that pyproject.toml pins a Python package to: 4.27.0."""
    for requirement in tomllib.loads(pyproject.read_text())["project"]["dependencies"]:
        name, equals, version = requirement.partition("==")
        if equals and name == package:
            return str(version)
    raise ToolchainError(f"{pyproject} does not pin {package}")


def requirement_pin(requirements: Path, package: str) -> str:
    """The exact version that a requirements file with hashes pins a package to."""
    match = re.search(rf"^{re.escape(package)}==(\S+)", requirements.read_text(), re.MULTILINE)
    if match is None:
        raise ToolchainError(f"{requirements} does not pin {package}")
    return match[1]
