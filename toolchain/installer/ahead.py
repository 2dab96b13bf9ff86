"""Downloads of Go modules while the processors are at an earlier build."""

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from toolchain.installer.tool import GoBuild, Tool


class Ahead:
    """Has Go fetch the modules of all builds to come, from the first build on. What fails, the build itself reports."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._builds: dict[Path, list[GoBuild]] = {}
        for recipe in (recipe for tool in tools for recipe in tool.recipes if isinstance(recipe, GoBuild)):
            self._builds.setdefault(recipe.module.folder, []).append(recipe)
        self._processes: list[subprocess.Popen[bytes]] | None = None

    def start(self) -> None:
        """Starts the downloads; does nothing when called again."""
        if self._processes is None:
            self._processes = []
            for folder, builds in self._builds.items():
                tags = ",".join(sorted({build.tags for build in builds if build.tags}))
                packages = sorted({build.package for build in builds})
                command = ["go", "list", "-e", "-mod=readonly", "-deps", f"-tags={tags}", "-f", "", *packages]
                self._processes.append(
                    subprocess.Popen(
                        command,
                        cwd=folder,
                        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes or []:
            if process.poll() is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGTERM)
            process.wait()
