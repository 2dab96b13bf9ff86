"""A clock that tests can replace, the timing of passes, and the length of a CronJob's run."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

# The seconds by which the time of day and the monotonic clock may differ between two passes.
JUMP_SECONDS = 5
# The seconds by which this node's clock and the API server's clock may differ.
APART_SECONDS = 30
# A container that starts at most this many seconds late runs for its full time. A container that starts later runs for
# less time, so that its last pass ends before the Job's deadline (components/base/agent.py).
PROMPT_SECONDS = 3
_MINUTE_SECONDS = 60
# The name of a CronJob's pod is <CronJob>-<minutes since 1970>-<5 letters> (getJobName in
# pkg/controller/cronjob/utils.go of Kubernetes).
_POD_NAME = re.compile(r".+-(\d+)-[a-z0-9]{5}")


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Clock:
    """Reads the monotonic clock and the time of day in UTC, and sleeps."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], datetime] = _utc_now

    def passes(self, *, run_seconds: float, interval_seconds: float) -> Iterator[None]:
        """Yields at the start of each pass. The first pass starts at once, and a pass follows after each interval until
        the run ends.
        """
        end = self.monotonic() + run_seconds
        while True:
            started = self.monotonic()
            yield
            now = self.monotonic()
            due = max(started + interval_seconds, now)
            if due >= end:
                return
            self.sleep(due - now)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The time of a pass on three clocks: the monotonic clock, the API server's clock, and this node's clock."""

    at: float
    server: datetime
    local: datetime

    def problem(self, before: "Moment | None") -> str | None:
        """Returns the reason why the time of day is wrong, or None if it is right.

        `before` is the moment of the last pass.
        """
        apart = (self.server - self.local).total_seconds()
        if abs(apart) > APART_SECONDS:
            return f"the API server's clock and this node's are {abs(apart):.0f} s apart"
        jump = 0 if before is None else (self.server - before.server).total_seconds() - (self.at - before.at)
        return f"the clock jumped by {jump:+.0f} s" if abs(jump) > JUMP_SECONDS else None


def seconds_left(run_seconds: float, pod_name: str, now: datetime) -> float:
    """Returns `run_seconds`, or less if the pod of the CronJob started late. The deadline of the Job stays the same."""
    scheduled = _POD_NAME.fullmatch(pod_name)
    if scheduled is None:  # a person has created this Job by hand
        return run_seconds
    late = now.timestamp() - int(scheduled[1]) * _MINUTE_SECONDS
    if not 0 <= late < _MINUTE_SECONDS:  # the number in the pod's name is not a time, or the clocks differ
        return run_seconds
    return max(0.0, min(run_seconds, run_seconds + PROMPT_SECONDS - late))
