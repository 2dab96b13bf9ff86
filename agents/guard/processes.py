"""The node's processes by container's control group, scanned cheaply many times a minute."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from agents.node import cgroup
from agents.node.cgroup import Container
from agents.runtime.clock import Clock

# A container's first process joins its control group after it has begun, so a young one is looked at every time.
YOUNG_SECONDS = 3.0
# By then a number that went to another process between two censuses is found out.
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
    """Remembers where the processes below `proc` were; one thread asks."""

    clock: Clock
    proc: Path = Path("/proc")
    _seen: dict[int, _Seen] = field(default_factory=dict)

    def take(self) -> dict[int, Container]:
        """The containers by process id. Raises ProcError, and OSError where there is no `proc`."""
        container_of = cgroup.reader(self.proc)
        now = self.clock.monotonic()
        before, self._seen = self._seen, {}
        for name in os.listdir(self.proc):
            if not name.isdecimal():
                continue
            pid = int(name)
            seen = before.get(pid)
            if seen is None or not seen.holds(now):
                seen = _Seen(container_of(pid), now if seen is None else seen.first_at, now)
            self._seen[pid] = seen
        return {pid: seen.container for pid, seen in self._seen.items() if seen.container is not None}
