"""Finds processes of this machine and of containers on the real node."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.e2e.rollout import eventually

LONGEST_END_SECONDS, TRIES = 2.0, 5


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_ends_in_time_by_sigterm(find: Callable[[], int | None], what: str) -> None:
    seconds: list[float] = []
    while not seconds or (min(seconds) >= LONGEST_END_SECONDS and len(seconds) < TRIES):
        pid = eventually(find, f"{what} runs")
        began = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        eventually(lambda pid=pid: not lives(pid), f"{what} has ended", pause_seconds=0.1)
        seconds.append(time.monotonic() - began)
    print(f"{what} ended after {seconds[-1]:.2f} s")
    assert min(seconds) < LONGEST_END_SECONDS, seconds
