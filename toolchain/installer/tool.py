"""What a tool is: its version, its files, and the ways to obtain it. Plain values; ways.py acts on them."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolchain.installer.pins import Module


@dataclass(frozen=True, kw_only=True)
class OnPath:
    """A command that tells its version, which `accepts` compares with the wanted one: accepts(found, wanted)."""

    command: tuple[str, ...]
    accepts: Callable[[str, str], bool]


@dataclass(frozen=True, kw_only=True)
class Release:
    """An official download with a published SHA-256.

    `members` are path patterns of the files to take out of the archive; without them the download is the program.
    """

    url: str
    checksums: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModuleFiles:
    """Files of a Go module, proven by go.sum; `files` maps a path or folder/ in it to one in the cache entry."""

    module: Module
    path: str
    files: Mapping[str, str]

    def pins(self) -> bytes:
        return self.module.h1(self.path).encode()


@dataclass(frozen=True, kw_only=True)
class GoBuild:
    """`go build` in a module's folder; `stamps` are -X variables.

    With `embeds` the package is the folder's own main.go, built in a copy of the folder that holds those files as well.
    `cgo`: by a C compiler too; what it calls of a library that is opened at run time may be missing until then.
    """

    module: Module
    package: str
    output: str
    stamps: Mapping[str, str] = field(default_factory=dict)
    tags: str = ""
    embeds: ModuleFiles | None = None
    cgo: bool = False

    def pins(self) -> bytes:
        return b"".join(file.read_bytes() for file in self.module.sources(self.package))


@dataclass(frozen=True, kw_only=True)
class PipInstall:
    """A program from a wheel, by a requirements file with hashes."""

    requirements: Path = field(repr=False)
    program: str

    def pins(self) -> bytes:
        return self.requirements.read_bytes()


Recipe = GoBuild | ModuleFiles | PipInstall


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One thing to install. `links` maps a path under .toolchain to a file of the cache entry, "" being all of it."""

    name: str
    version: str
    platform: str
    links: Mapping[str, str]
    recipes: tuple[Recipe, ...]
    on_path: OnPath | None = None
    release: Release | None = None

    @property
    def key(self) -> str:
        """Names the content: equal pins and recipes (whose repr holds no path) give equal keys in every checkout."""
        digest = hashlib.sha256(self.platform.encode())
        for recipe in self.recipes:
            digest.update(repr(recipe).encode() + recipe.pins())
        return digest.hexdigest()[:12]
