"""Runs previews in a terminal of 100 columns, and returns their reports and pictures."""

import fcntl
import os
import pty
import shutil
import struct
import subprocess
import tempfile
import termios
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from toolchain.workspace import Workspace, workspace

COLUMNS, LINES = 100, 50


def preview(larger: str | None = None, mib: int = 0) -> str:
    """Runs a preview of prod in a copy of the checkout. Returns the preview's report from the first change on.

    If `larger` names a resident, its seat has `mib` MiB in this preview.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = workspace(Path(folder))
        if larger is not None:
            made.change(lambda config: _raised(config, larger, mib))
        shown = _in_terminal(made, ".venv/bin/python", "-m", "stacks", "preview", "--stack", "prod")
    lines = shown.splitlines()
    first = next(number for number, line in enumerate(lines) if "to create" in line)
    return "\n".join(lines[first:])


def pull_request(changed_mib: Mapping[str, int]) -> str:
    """Runs a preview of a changed prod in a copy of the checkout. Returns the HTML picture of the change.

    `changed_mib` maps residents to the new sizes of their seats.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = workspace(Path(folder))
        base = made.project / "build" / "base" / "Pulumi.prod.yaml"
        base.parent.mkdir(parents=True)
        shutil.copy(made.stack_file, base)
        for seat, mib in changed_mib.items():
            made.change(partial(_raised, seat=seat, mib=mib))
        before = str(base.relative_to(made.project))
        _in_terminal(made, ".venv/bin/python", "-m", "stacks", "preview", "--stack", "prod", "--before", before)
        return (made.project / "build" / "preview" / "prod.html").read_text()


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
    """Returns the next bytes of the terminal's output, or no bytes if the output has ended.

    On Linux, the end of a terminal's output raises an error.
    """
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""
