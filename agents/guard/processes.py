"""Maps the node's processes to their containers. Caches the result, because the guard scans twice a second."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from agents.node import cgroup
from agents.node.cgroup import Container
from agents.runtime.clock import Clock

# A container's first process joins its control group only after its start. Every scan reads the processes that are
# younger than this time.
YOUNG_SECONDS = 3.0
# After this time, the process is read again, because another process may have taken its id.
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

    def scan(self) -> dict[int, Container]:
        """Returns the containers by process id. Raises ProcError. Raises OSError if `proc` does not exist."""
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
