"""Says what the installer does, and runs its long steps, each with a log."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolchain.installer.errors import ToolchainError

LOG_LINES_SHOWN = 15


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)


def run(
    label: str, command: Sequence[str], log: Path, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Runs a command, writes its output into the log, and says how long it took.

    If the command fails, raises ToolchainError with the last lines of the log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    say(f"    {label}", end="")
    began = time.monotonic()
    with log.open("wb") as output:
        done = subprocess.run(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        )
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    say(f"  {minutes}:{seconds:02}")
    if done.returncode:
        tail = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        shown = "\n".join(f"  | {line}" for line in tail)
        raise ToolchainError(f"{label} failed (exit code {done.returncode}); the end of {log}:\n{shown}")
