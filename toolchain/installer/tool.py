"""The value types of a tool: its version, its files, and the ways to obtain it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolchain.installer.pins import Module


@dataclass(frozen=True, kw_only=True)
class Release:
    """An official download with a published SHA-256.

    `members` are path patterns of the files to take out of the archive. Without members the download is the program.
    """

    url: str
    checksums: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModuleFiles:
    """Files of a Go module, proven by go.sum. `files` maps a path or a folder/ in it to a place in the cache entry."""

    module: Module
    path: str
    files: Mapping[str, str]

    def pins(self) -> bytes:
        return self.module.h1(self.path).encode()


@dataclass(frozen=True, kw_only=True)
class GoBuild:
    """Programs that Go builds in a module's folder, by their packages. `stamps` are -X variables.

    The packages find the files of `embeds` in the folder as they embed them. With `cgo` a C compiler is needed, and
    functions of a library that the program opens at run time may be missing until then.
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
    """A program from a wheel, by a requirements file with hashes."""

    requirements: Path = field(repr=False)
    program: str

    def pins(self) -> bytes:
        return self.requirements.read_bytes()


@dataclass(frozen=True, kw_only=True)
class DebianPackages:
    """A program from packages of the machine's own Debian. `file` is its path in a package."""

    packages: tuple[str, ...]
    file: str
    program: str

    def pins(self) -> bytes:
        return b""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One thing to install. `links` maps a path under .toolchain to a file of the cache entry; "" is the entry."""

    name: str
    version: str
    platform: str
    links: Mapping[str, str]
    recipes: tuple[GoBuild | ModuleFiles | PipInstall | DebianPackages, ...]
    release: Release | None = None

    @property
    def key(self) -> str:
        """Names the content: equal pins and recipes give equal keys in every checkout, since no repr holds a path."""
        digest = hashlib.sha256(self.platform.encode())
        for recipe in self.recipes:
            digest.update(repr(recipe).encode() + recipe.pins())
        return digest.hexdigest()[:12]

    @property
    def builds(self) -> list[GoBuild]:
        return [recipe for recipe in self.recipes if isinstance(recipe, GoBuild)]
