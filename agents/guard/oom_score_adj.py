"""Lowers the oom_score_adj of a process if the process is still in the expected container.

Source: https://man7.org/linux/man-pages/man5/proc_pid_oom_score_adj.5.html
"""

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from agents.node.cgroup import Container, container_in
from agents.runtime.errors import AgentError


class AdjOutcome(StrEnum):
    LOW = "at the value or below it"
    LOWERED = "above it, and lowered"
    GONE = "gone, or in another container"


class OomScoreError(AgentError):
    """The kernel refuses to lower the oom_score_adj."""


def lower_adj(proc: Path, pid: int, container: Container, adj: int) -> AdjOutcome:
    """Lowers the oom_score_adj of the process to `adj` if it is higher. Raises OomScoreError.

    After the guard has lowered the value, only a process with CAP_SYS_RESOURCE can lower it below `adj`.
    """
    with suppress(FileNotFoundError, ProcessLookupError):
        if int((proc / str(pid) / "oom_score_adj").read_bytes()) <= adj:
            return AdjOutcome.LOW
        # If another process gets the same PID later, the open directory still belongs to the old process.
        folder = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY)
        try:
            return _lower(folder, container, adj)
        except PermissionError as error:
            raise OomScoreError(
                f"oom_score_adj cannot be lowered to {adj}: {error.strerror}; the guard needs CAP_SYS_RESOURCE and "
                "CAP_DAC_OVERRIDE"
            ) from None
        finally:
            os.close(folder)
    return AdjOutcome.GONE


def _lower(folder: int, container: Container, adj: int) -> AdjOutcome:
    if container_in(_read(folder, "cgroup").decode(errors="replace")) != container:
        return AdjOutcome.GONE
    if int(_read(folder, "oom_score_adj")) <= adj:
        return AdjOutcome.LOW
    file = os.open("oom_score_adj", os.O_WRONLY, dir_fd=folder)
    try:
        os.write(file, str(adj).encode())
    finally:
        os.close(file)
    return AdjOutcome.LOWERED


def _read(folder: int, name: str) -> bytes:
    with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
        return file.read()
