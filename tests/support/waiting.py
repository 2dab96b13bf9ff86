"""Waits for a condition. A slow machine delays a test and fails none, because only a hang reaches the limit."""

from collections.abc import Callable
from typing import Any

from toolchain.cluster.api import wait_until

# A run of a CronJob ends within two minutes.
PATIENCE_SECONDS = 240
# Lanes of tests wait at the same time, so that the pause limits the load.
LONGEST_PAUSE_SECONDS = 0.5


def eventually(
    holds: Callable[[], Any],
    what: str = "the test waits",
    state: Callable[[], object] | None = None,
    *,
    pause_seconds: float = LONGEST_PAUSE_SECONDS,
) -> Any:
    """Returns the first true result of `holds`. An OSError counts as false.

    Raises ClusterError with `what` and the result of `state` if nothing has been true for PATIENCE_SECONDS.
    """
    return wait_until(holds, PATIENCE_SECONDS, what, state, pause_seconds=pause_seconds)


def becomes(read: Callable[[], object], wanted: object, what: str = "the test waits") -> None:
    eventually(lambda: read() == wanted, what, read)
