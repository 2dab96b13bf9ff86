"""The per-user cache that all checkouts share, and the .toolchain folder of one checkout that points into it.

A cache entry is a folder named <tool>-<version>-<key>. It appears whole, by one rename, and never changes after that.
An interruption leaves nothing half. A lock per entry keeps two runs from building the same thing.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from toolchain.installer.tool import Tool

PULUMI_HOME = "pulumi-home"


@dataclass(frozen=True)
class Store:
    cache: Path
    shelf: Path  # .toolchain

    def entry(self, tool: Tool) -> Path:
        return self.cache / f"{tool.name}-{tool.version}-{tool.key}"

    def lock(self, tool: Tool) -> Path:
        return self.cache / f"{self.entry(tool).name}.lock"

    def log(self, tool: Tool) -> Path:
        return self.cache / "logs" / f"{self.entry(tool).name}.log"

    def holds(self, tool: Tool) -> bool:
        entry = self.entry(tool)
        return all((entry / file).exists() for file in tool.links.values())

    @contextmanager
    def filling(self, tool: Tool) -> Iterator[Path]:
        """An empty folder that becomes the tool's entry when the block succeeds. Call it under the tool's lock."""
        entry = self.entry(tool)
        for leftover in self.cache.glob(f"{entry.name}.partial-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        # A new name each time: a compiler that outlived a killed run writes into a folder that is gone.
        partial = Path(tempfile.mkdtemp(prefix=f"{entry.name}.partial-", dir=self.cache))
        try:
            yield partial
            partial.chmod(0o755)
            shutil.rmtree(entry, ignore_errors=True)  # only there if somebody took files out of it
            partial.rename(entry)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def link(self, tool: Tool) -> None:
        """Points .toolchain at the tool's files in the cache."""
        for link, file in tool.links.items():
            _replace_link(self.shelf / link, self.entry(tool) / file)
            if link.startswith(PULUMI_HOME):
                _keep_no_logs(self.shelf / PULUMI_HOME)

    def linked(self, tool: Tool) -> bool:
        """True if .toolchain has this very tool."""
        targets = {self.shelf / link: self.entry(tool) / file for link, file in tool.links.items()}
        return all(link.is_symlink() and link.readlink() == to and to.exists() for link, to in targets.items())


@contextmanager
def locked(file: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds an exclusive lock, which the system releases however the process ends; calls `waiting` if it must wait."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _keep_no_logs(pulumi_home: Path) -> None:
    """Puts a file where Pulumi would keep its log of each command (pkg/logging/encrypted.go).

    Pulumi has no switch for that log, which was a quarter of a preview's CPU time, and goes on without it.
    """
    logs = pulumi_home / "logs"
    if logs.is_dir():
        shutil.rmtree(logs, ignore_errors=True)
    with suppress(OSError):  # another run's log came between, and stays
        logs.touch()


def _replace_link(link: Path, target: Path) -> None:
    """Makes or replaces a symbolic link in one step, so that two runs and a running program never see it missing."""
    link.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".link-", dir=link.parent) as folder:
        fresh = Path(folder) / "link"
        fresh.symlink_to(target)
        os.replace(fresh, link)
