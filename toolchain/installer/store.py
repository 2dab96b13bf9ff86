"""The per-user cache that all checkouts share, and the .toolchain folder of one checkout that points into it.

A cache entry is a folder named <tool>-<version>-<key>. It appears whole, by one rename, and is never changed after
that, so an interruption leaves nothing half. A lock per entry keeps two runs from building the same thing.
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
        # A name of its own each time: a compiler that outlived a killed run writes into a folder that is gone.
        partial = Path(tempfile.mkdtemp(prefix=f"{entry.name}.partial-", dir=self.cache))
        try:
            yield partial
            partial.chmod(0o755)
            shutil.rmtree(entry, ignore_errors=True)  # only there when somebody took files out of it
            partial.rename(entry)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def link(self, tool: Tool, folder: Path) -> None:
        """Points .toolchain at the tool's files in `folder`: its cache entry, or a folder on PATH."""
        for link, file in tool.links.items():
            _replace_link(self.shelf / link, folder / file)
            if link.startswith(PULUMI_HOME):
                _keep_no_logs(self.shelf / PULUMI_HOME)
        receipt = self._receipt(tool)
        if folder == self.entry(tool):
            receipt.unlink(missing_ok=True)
        else:
            receipt.parent.mkdir(parents=True, exist_ok=True)
            receipt.write_text(self._sighting(tool))

    def linked(self, tool: Tool) -> bool:
        """Whether .toolchain has this very tool: its cache entry, or what was found right on PATH, unchanged."""
        targets = {link: self.shelf / link for link in tool.links}
        if not all(target.exists() for target in targets.values()):
            return False
        entry = self.entry(tool)
        if all(targets[link].readlink() == entry / file for link, file in tool.links.items()):
            return True
        receipt = self._receipt(tool)
        return receipt.exists() and receipt.read_text() == self._sighting(tool)

    def _receipt(self, tool: Tool) -> Path:
        return self.shelf / "from-path" / tool.name

    def _sighting(self, tool: Tool) -> str:
        """What to remember of a tool from PATH: asking it for its version on every run would cost seconds."""
        lines = [tool.version]
        for link in tool.links:
            target = (self.shelf / link).readlink()
            status = target.stat()
            lines.append(f"{target} {status.st_size} {status.st_mtime_ns}")
        return "\n".join(lines)


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
    """Pulumi logs every command there, for its own support, which is a quarter of a preview's CPU time, and it has no
    switch for that. It goes on without where a file has the folder's place (pkg/logging/encrypted.go)."""
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
