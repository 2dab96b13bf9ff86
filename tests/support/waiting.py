"""Waits for a condition. A slow machine delays a test and fails none, because only a hang reaches the limit."""

from collections.abc import Callable
from typing import Any

from toolchain.cluster.api import wait_until

PATIENCE_SECONDS = 240.0
_PAUSE_SECONDS = 0.02


def eventually(holds: Callable[[], Any], state: Callable[[], object] | None = None) -> Any:
    """Returns the first true result of `holds`. An OSError counts as false.

    Raises ClusterError with the result of `state` if nothing has been true for PATIENCE_SECONDS.
    """
    return wait_until(holds, PATIENCE_SECONDS, "the test waits", state, pause_seconds=_PAUSE_SECONDS)


def becomes(read: Callable[[], object], wanted: object) -> None:
    eventually(lambda: read() == wanted, read)
