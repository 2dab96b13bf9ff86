"""Gets each tool from the first source that has it: the cache, the official release, or a build with Go."""

import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from toolchain.installer import debian, golang
from toolchain.installer.console import Console
from toolchain.installer.download import Internet, take_release
from toolchain.installer.errors import ToolchainError, UnavailableError
from toolchain.installer.store import Store, locked
from toolchain.installer.tool import DebianPackages, Dependencies, GoBuild, ModuleFiles, PipInstall, Release, Tool

_PIP = DebianPackages(
    packages=("python3-pip-whl",),
    programs={"pip.whl": "usr/share/python-wheels/pip-*.whl"},
    dependencies=Dependencies.NONE,
)


class Installer:
    """`go` is the tool that builds the others on a machine without Go."""

    def __init__(self, store: Store, internet: Internet, console: Console, go: Tool | None = None) -> None:
        self._store = store
        self._internet = internet
        self._console = console
        self._go = go

    def install(self, tools: Sequence[Tool]) -> list[str]:
        """Gets each tool and links it into .toolchain.

        Returns a line for each tool that only tests need, and that this machine cannot get. Raises ToolchainError.
        """
        lacking = []
        for tool in tools:
            try:
                self._provide(tool)
            except UnavailableError as closed:
                lacking.append(f"without {tool.name} ({closed}), these tests are skipped: {tool.skipped}")
        return lacking

    def _provide(self, tool: Tool) -> None:
        if not self._store.linked(tool):
            waiting = partial(self._say, tool, "another run is installing it; waiting")
            with locked(self._store.lock(tool), waiting):
                self._obtain(tool)
            self._store.link(tool)

    def _obtain(self, tool: Tool) -> None:
        if self._store.holds(tool):
            self._say(tool, "in the cache")
            return
        with self._store.filling(tool) as folder:
            why = self._internet.closed if tool.release else "no release with a published checksum"
            if tool.release and not why:
                why = self._download(tool, tool.release, folder)
            if why:
                self._make(tool, folder, why)
            if missing := [file for file in tool.links.values() if not (folder / file).exists()]:
                raise ToolchainError(f"{tool.name} {tool.version}: {', '.join(missing)} did not come out of it")

    def _download(self, tool: Tool, release: Release, folder: Path) -> str | None:
        """Downloads the release into the folder. Returns None, or the reason why the release is unavailable."""
        self._say(tool, "downloading the official release")
        try:
            take_release(release, tool.name, folder, self._console)
        except UnavailableError as closed:
            return str(closed)
        return None

    def _make(self, tool: Tool, folder: Path, why: str) -> None:
        if tool.builds:
            self._find_go(tool, why)
        self._say(tool, f"building with Go; {why}" if tool.builds else "from its pins or packages, proven by checksums")
        log = self._store.log(tool)
        for recipe in tool.recipes:
            match recipe:
                case GoBuild():
                    golang.build(recipe, folder, self._console, log, self._store.shelf / "bin")
                case ModuleFiles():
                    golang.copy_files(recipe, folder, self._console)
                case PipInstall():
                    self._pip_install(recipe, folder, log, needed=not tool.skipped)
                case DebianPackages():
                    debian.unpack(recipe, folder, self._console, log)

    def _find_go(self, tool: Tool, why: str) -> None:
        own = os.pathsep.join((os.environ.get("PATH", ""), str(self._store.shelf / "bin")))
        if any(recipe.cgo for recipe in tool.builds) and shutil.which("gcc", path=own) is None:
            raise UnavailableError("there is no C compiler")
        if shutil.which("go") is not None:
            return
        try:
            if self._go is None:
                raise UnavailableError("no Go")
            self._provide(self._go)
        except (ToolchainError, UnavailableError):
            self._go = None  # one attempt is enough
            if tool.skipped:
                raise UnavailableError("there is no Go to build it") from None
            raise ToolchainError(
                f"{tool.name} {tool.version} cannot be had: {why}; and there is no Go to build it.\n"
                f"Install Go {tool.builds[0].module.go} or newer (https://go.dev/dl),"
                " or let this machine download releases."
            ) from None

    def _pip_install(self, recipe: PipInstall, into: Path, log: Path, *, needed: bool) -> None:
        with TemporaryDirectory(dir=into) as scratch:
            target = into if recipe.whole else Path(scratch, "wheel")
            try:
                # Many systems forbid that pip changes their Python, and allow a target folder.
                pip = [sys.executable, str(self._pip(Path(scratch), log) / "pip"), "install", "--retries=1"]
                install = [*pip, "--require-hashes", "--target", str(target), "-r", str(recipe.requirements)]
                self._console.run(f"pip install {recipe.program}", install, log)
            except ToolchainError as failed:
                if needed:
                    raise
                raise UnavailableError(str(failed).splitlines()[0]) from None
            if not recipe.whole:
                (target / "bin" / recipe.program).rename(into / recipe.program)

    def _pip(self, scratch: Path, log: Path) -> Path:
        """Returns the wheel of pip that Python's module ensurepip has. Python runs the wheel as it is.

        On Debian, the wheel and ensurepip have packages of their own, which may be missing.
        """
        system = sysconfig.get_config_var("WHEEL_PKG_DIR")
        folders = [Path(sysconfig.get_path("stdlib"), "ensurepip", "_bundled"), *([Path(system)] if system else [])]
        if found := [wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))]:
            return found[-1]
        try:
            debian.unpack(_PIP, scratch, self._console, log)
        except UnavailableError as lacking:
            raise ToolchainError(f"{sys.executable} has no ensurepip, and {lacking}") from None
        return scratch / "pip.whl"

    def _say(self, tool: Tool, text: str) -> None:
        self._console.line(f"{tool.name} {tool.version}: {text}")
