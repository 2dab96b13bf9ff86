"""Time, injectable, and the loop of a CronJob's run inside its minute."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Clock:
    """Seconds that only grow, a sleep on the same scale, and the time of day in UTC."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], datetime] = _utc_now

    def passes(self, *, run_seconds: float, interval_seconds: float) -> Iterator[None]:
        """The passes of a run: one at once, then one an interval, none that would start after the run's end."""
        end = self.monotonic() + run_seconds
        while True:
            started = self.monotonic()
            yield
            now = self.monotonic()
            due = max(started + interval_seconds, now)
            if due >= end:
                return
            self.sleep(due - now)
