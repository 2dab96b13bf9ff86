"""Maps the node's processes to their containers, cheaply enough for many scans a minute."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from agents.node import cgroup
from agents.node.cgroup import Container
from agents.runtime.clock import Clock

# A container's first process joins its control group only after its start, so a young process is read every time.
YOUNG_SECONDS = 3.0
# The index notices after this time that another process has taken a process id.
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
    """Finds the containers of the processes below `proc`. Only one thread may scan."""

    clock: Clock
    proc: Path = Path("/proc")
    _seen: dict[int, _Seen] = field(default_factory=dict)

    def scan(self) -> dict[int, Container]:
        """Returns the containers by process id. Raises ProcError, or OSError if `proc` does not exist."""
        now = self.clock.monotonic()
        before, self._seen = self._seen, {}
        for name in os.listdir(self.proc):
            if not name.isdecimal():
                continue
            pid = int(name)
            seen = before.get(pid)
            if seen is None or not seen.holds(now):
                seen = _Seen(cgroup.container_of(pid, self.proc), now if seen is None else seen.first_at, now)
            self._seen[pid] = seen
        return {pid: seen.container for pid, seen in self._seen.items() if seen.container is not None}
