"""Manages the cache, which all checkouts of a user share, and the links from a checkout's .toolchain into the cache.

A cache entry is a folder named <tool>-<version>-<key>. The installer gives the folder this name when all its files
exist. A complete folder in the cache never changes. Therefore an interrupted run leaves no incomplete entry. Each cache
entry has a lock. Therefore two runs cannot build the same cache entry at the same time.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from toolchain.installer.console import say
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
        """Yields an empty folder. If the `with` block succeeds, the folder becomes the tool's cache entry.

        The caller holds the tool's lock.
        """
        entry = self.entry(tool)
        for leftover in self.cache.glob(f"{entry.name}.partial-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        # Each run of the installer uses a new folder name. The compiler of a killed run may still be running. The
        # compiler of a killed run cannot write into the new folder.
        partial = Path(tempfile.mkdtemp(prefix=f"{entry.name}.partial-", dir=self.cache))
        try:
            yield partial
            partial.chmod(0o755)
            # The entry exists already only if some of its files were deleted.
            shutil.rmtree(entry, ignore_errors=True)
            partial.rename(entry)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def link(self, tool: Tool) -> None:
        """Makes links in .toolchain to the tool's files in the cache."""
        for link, file in tool.links.items():
            place = self.shelf / link
            place.parent.mkdir(parents=True, exist_ok=True)
            fresh = place.with_name(f".{place.name}-{os.getpid()}")
            fresh.symlink_to(self.entry(tool) / file)
            fresh.replace(place)  # in one step, because another run may link the same tool
            if link.startswith(PULUMI_HOME):
                _keep_no_logs(self.shelf / PULUMI_HOME)

    def linked(self, tool: Tool) -> bool:
        """Returns True if all links of the tool in .toolchain lead to existing files of this version."""
        targets = {self.shelf / link: self.entry(tool) / file for link, file in tool.links.items()}
        return all(link.is_symlink() and link.readlink() == to and to.exists() for link, to in targets.items())


@contextmanager
def locked(file: Path, what: str) -> Iterator[None]:
    """Holds an exclusive lock while the `with` block runs. If another process has the lock, says so and waits.

    The system releases the lock even if the process is killed.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{what}: another run is installing it; waiting")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _keep_no_logs(pulumi_home: Path) -> None:
    """Creates a file in place of Pulumi's log folder. Therefore Pulumi cannot write logs (pkg/logging/encrypted.go).

    Pulumi's logs took a quarter of a preview's CPU time, and Pulumi has no setting that disables the logs. Pulumi works
    without its log folder.
    """
    logs = pulumi_home / "logs"
    if logs.is_dir():
        shutil.rmtree(logs, ignore_errors=True)
    with suppress(OSError):  # A Pulumi process that still runs may have created the folder again.
        logs.touch()
