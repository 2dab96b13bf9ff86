"""The clock, injectable: jumps, skew, how long a CronJob's run may last, and its passes within its minute."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

# Between two passes the time of day moves as the monotonic clock does, but for the server's whole seconds.
JUMP_SECONDS = 5
# Between this node's time of day and the API server's.
APART_SECONDS = 30
# A container that starts so long after its scheduled minute runs its whole time; a later one ends no later than that
# one, and leaves its last pass the rest of the Job's deadline (components/base/agent.py).
PROMPT_SECONDS = 3
_MINUTE_SECONDS = 60
# <CronJob>-<minutes since 1970>-<5 letters>: getJobName in pkg/controller/cronjob/utils.go of Kubernetes.
_POD_NAME = re.compile(r".+-(\d+)-[a-z0-9]{5}")


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


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The clocks of a pass: `at` is monotonic seconds, `server` the API server's time of day, `local` this node's."""

    at: float
    server: datetime
    local: datetime

    def problem(self, before: "Moment | None") -> str | None:
        """Why no time of day is to be believed; `before` is the moment of the pass before this one."""
        apart = (self.server - self.local).total_seconds()
        if abs(apart) > APART_SECONDS:
            return f"the API server's clock and this node's are {abs(apart):.0f} s apart"
        jump = 0 if before is None else (self.server - before.server).total_seconds() - (self.at - before.at)
        return f"the clock jumped by {jump:+.0f} s" if abs(jump) > JUMP_SECONDS else None


def seconds_left(run_seconds: float, pod_name: str, now: datetime) -> float:
    """`run_seconds`, or less where the pod of a CronJob's run started so late that its Job would end before it: on
    a busy cluster the container starts late, and the Job's deadline does not."""
    scheduled = _POD_NAME.fullmatch(pod_name)
    if scheduled is None:  # made by hand
        return run_seconds
    late = now.timestamp() - int(scheduled[1]) * _MINUTE_SECONDS
    if not 0 <= late < _MINUTE_SECONDS:  # a number of another meaning, or clocks that disagree
        return run_seconds
    return max(0.0, min(run_seconds, run_seconds + PROMPT_SECONDS - late))
