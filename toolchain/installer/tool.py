"""Defines the types that describe a tool's version, its files, and its sources."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from toolchain.installer.pins import Module


@dataclass(frozen=True, kw_only=True)
class Release:
    """An official download with a published SHA-256.

    `members` are path patterns of the needed files in the archive. Without `members`, the download is the program
    itself and not an archive.
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
class ChangedModule:
    """A module of which a build changes one file.

    `changes` maps regular expressions to their replacements in the file at the path `file`.
    """

    files: ModuleFiles
    file: str
    changes: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class GoBuild:
    """Programs that Go builds in a module's folder.

    `programs` maps each program to its package, and `stamps` the variables that the linker sets to their values. The
    packages embed the files of `embeds`, and are built with the changed module `changed`. With `cgo`, the build needs a
    C compiler, and the linker accepts functions of libraries that the program loads at run time.
    """

    module: Module
    programs: Mapping[str, str]
    stamps: Mapping[str, str] = field(default_factory=dict)
    tags: str = ""
    embeds: ModuleFiles | None = None
    changed: ChangedModule | None = field(default=None, repr=False)
    cgo: bool = False

    def pins(self) -> bytes:
        files = {file for package in self.programs.values() for file in self.module.sources(package)}
        changed = repr(self.changed).encode() if self.changed else b""
        return b"".join(file.read_bytes() for file in sorted(files)) + changed


@dataclass(frozen=True, kw_only=True)
class PipInstall:
    """A program of a Python wheel. A requirements file pins the wheel by its hash.

    With `whole`, the cache entry has all files of the wheel, because the program needs them.
    """

    requirements: Path = field(repr=False)
    program: str
    whole: bool = field(default=False, repr=False)

    def pins(self) -> bytes:
        return self.requirements.read_bytes()


class Dependencies(StrEnum):
    """Which dependencies of Debian's packages the installer unpacks."""

    NONE = "none"
    MISSING = "missing"  # the dependencies that the machine lacks
    ALL = "all"


@dataclass(frozen=True, kw_only=True)
class DebianPackages:
    """Programs from Debian's packages, for the Debian release of this machine.

    `programs` maps each program to its path in the packages. A path can be a pattern. `arguments` stand before the
    arguments of the user. In `arguments`, `$here` is the folder of the unpacked packages.
    """

    packages: tuple[str, ...]
    programs: Mapping[str, str]
    dependencies: Dependencies = Dependencies.MISSING
    arguments: str = ""

    def pins(self) -> bytes:
        return b""


Recipe = GoBuild | ModuleFiles | PipInstall | DebianPackages


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool to install.

    `links` maps paths below .toolchain to files of the cache entry. The file name "" stands for the whole entry.
    `skipped` names the tests that need the tool. If `skipped` is empty, the installer fails without the tool.
    """

    name: str
    version: str
    platform: str
    links: Mapping[str, str]
    recipes: tuple[Recipe, ...]
    release: Release | None = None
    skipped: str = ""

    @property
    def key(self) -> str:
        """A hash of the tool's pinned versions and of its recipes.

        This hash is the same in every checkout, because the text of a recipe never contains a path of the checkout.
        """
        digest = hashlib.sha256(self.platform.encode())
        for recipe in self.recipes:
            digest.update(repr(recipe).encode() + recipe.pins())
        return digest.hexdigest()[:12]
