"""Runs a preview in a terminal of 100 columns, and returns its report."""

import fcntl
import os
import pty
import struct
import subprocess
import tempfile
import termios
from pathlib import Path
from typing import Any

from toolchain.workspace import Workspace, workspace

COLUMNS, LINES = 100, 50


def preview(larger: str | None = None, mib: int = 0) -> str:
    """Previews prod in a copy of the checkout, and returns the report without the lines before the first change.

    If `larger` names a resident, its seat has `mib` MiB.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = workspace(Path(folder))
        if larger is not None:
            made.change(lambda config: _raised(config, larger, mib))
        shown = _in_terminal(made, ".venv/bin/python", "-m", "stacks", "preview", "--stack", "prod")
    lines = shown.splitlines()
    first = next(number for number, line in enumerate(lines) if "to create" in line)
    return "\n".join(lines[first:])


def _raised(config: dict[str, Any], seat: str, mib: int) -> None:
    config["residents"][seat]["gpumem_mib"] = mib


def _in_terminal(made: Workspace, *command: str) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    env = {**made.env, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    with subprocess.Popen(command, cwd=made.project, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs):
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return shown.decode()


def _read(terminal: int) -> bytes:
    """Returns the next bytes of the terminal, or no bytes at its end. Linux reports a terminal's end as an error."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""
