"""Defines the types that describe a tool's version, its files, and its sources."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolchain.installer.pins import Module


@dataclass(frozen=True, kw_only=True)
class Release:
    """An official download with a published SHA-256.

    `members` are path patterns of the needed files in the archive. Without `members`, the download is the program
    itself.
    """

    url: str
    checksums: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModuleFiles:
    """Files of a Go module, which go.sum verifies.

    `files` maps the path of a file or folder in the module to a path in the cache entry.
    """

    module: Module
    path: str
    files: Mapping[str, str]

    def pins(self) -> bytes:
        return self.module.h1(self.path).encode()


@dataclass(frozen=True, kw_only=True)
class GoBuild:
    """Programs that Go builds in a module's folder.

    `programs` maps each program to its package. `stamps` maps variables of the programs to values, which the linker's
    flag `-X` sets. The build adds the files of `embeds` to the folder, because the packages embed these files. With
    `cgo`, the build needs a C compiler, and the linker allows functions of libraries that the program loads at run
    time.
    """

    module: Module
    programs: Mapping[str, str]
    stamps: Mapping[str, str] = field(default_factory=dict)
    tags: str = ""
    embeds: ModuleFiles | None = None
    cgo: bool = False

    def pins(self) -> bytes:
        files = {file for package in self.programs.values() for file in self.module.sources(package)}
        return b"".join(file.read_bytes() for file in sorted(files))


@dataclass(frozen=True, kw_only=True)
class PipInstall:
    """A program of a Python wheel. A requirements file pins the wheel by its hash."""

    requirements: Path = field(repr=False)
    program: str

    def pins(self) -> bytes:
        return self.requirements.read_bytes()


@dataclass(frozen=True, kw_only=True)
class DebianPackages:
    """A program from packages of Debian, in the release that this machine runs.

    `file` is the program's path in a package.
    """

    packages: tuple[str, ...]
    file: str
    program: str

    def pins(self) -> bytes:
        return b""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool to install.

    `links` maps a path below .toolchain to a file of the cache entry. The file "" stands for the whole entry.
    """

    name: str
    version: str
    platform: str
    links: Mapping[str, str]
    recipes: tuple[GoBuild | ModuleFiles | PipInstall | DebianPackages, ...]
    release: Release | None = None

    @property
    def key(self) -> str:
        """A hash of the tool's pins and recipes.

        The hash is the same in every checkout, because no repr of a recipe contains a path of the checkout.
        """
        digest = hashlib.sha256(self.platform.encode())
        for recipe in self.recipes:
            digest.update(repr(recipe).encode() + recipe.pins())
        return digest.hexdigest()[:12]

    @property
    def builds(self) -> list[GoBuild]:
        return [recipe for recipe in self.recipes if isinstance(recipe, GoBuild)]
