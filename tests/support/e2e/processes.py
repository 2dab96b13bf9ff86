"""Finds processes of this machine and of containers on the real node."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.support.waiting import eventually


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end_by_sigterm(find: Callable[[], int], what: str) -> None:
    """Sends SIGTERM as soon as the process has installed its handler, and waits for the end of the process."""

    def listening() -> int | None:
        pid = find()
        status = Path(f"/proc/{pid}/status").read_text()
        (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        return pid if int(caught, 16) >> (signal.SIGTERM - 1) & 1 else None

    pid = eventually(listening, f"{what} runs")
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not lives(pid), f"{what} has ended", pause_seconds=0.1)
