"""Maps the processes of the node to their containers. Caches the containers of processes, because the guard scans twice
a second.
"""

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agents.node import cgroup
from agents.node.cgroup import Container
from agents.runtime.clock import Clock
from agents.runtime.items import ItemProblems

# A container's first process joins the container's control group shortly after its start. Every scan reads the control
# group of a process again if the process started less than this many seconds ago.
YOUNG_SECONDS = 3.0
# A scan reads a process again after this time, because the PID may now belong to another process.
STALE_SECONDS = 10.0


@dataclass(frozen=True)
class _Seen:
    container: Container | None
    first_at: float
    read_at: float

    def holds(self, now: float) -> bool:
        return self.first_at + YOUNG_SECONDS <= self.read_at and now < self.read_at + STALE_SECONDS


@dataclass
class ProcessIndex:
    """Finds the container of each process in the directory `proc`. Only one thread may call `scan`."""

    clock: Clock
    proc: Path = Path("/proc")
    _seen: dict[int, _Seen] = field(default_factory=dict)

    def scan(self, problems: ItemProblems) -> dict[int, Container]:
        """Returns the container of each process, by PID. Raises OSError if `proc` does not exist.

        A process with an unreadable control group counts as outside any container. The next scan reads the unreadable
        control group again.
        """
        now = self.clock.monotonic()
        before, self._seen = self._seen, {}
        problems.relist()
        for name in os.listdir(self.proc):
            if not name.isdecimal():
                continue
            pid = int(name)
            seen = before.get(pid)
            if seen is None or not seen.holds(now):
                first_at = now if seen is None else seen.first_at
                seen = problems.judge("process", name, partial(self._read, pid, first_at, now), lambda why: None)
            if seen is not None:
                self._seen[pid] = seen
        return {pid: seen.container for pid, seen in self._seen.items() if seen.container is not None}

    def _read(self, pid: int, first_at: float, now: float) -> _Seen:
        return _Seen(cgroup.container_of(pid, self.proc), first_at, now)
