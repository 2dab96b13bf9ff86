"""Prints the progress. Each tool has a line, and each long step of a tool has a line below it with the elapsed time."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from toolchain.installer.errors import ToolchainError

LOG_LINES_SHOWN = 15
QUIET_SECONDS = 60  # a long step prints its elapsed time every minute


@dataclass(frozen=True)
class Console:
    stream: TextIO

    def line(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def run(
        self,
        label: str,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Runs a command, writes its output into the log, and prints its elapsed time.

        If the command fails, raises ToolchainError with the last lines of the log. If the installer is interrupted,
        the command and its children are terminated.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with log.open("wb") as output:
            # The installer handles an interrupt only after it knows the process. After an earlier interrupt, the
            # process could continue alone.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                while process.poll() is None:
                    try:
                        process.wait(timeout=QUIET_SECONDS)
                    except subprocess.TimeoutExpired:
                        self.line(f"    {label}  {_clock(time.monotonic() - began)} and counting")
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
                    process.wait()
        self.line(f"    {label}  {_clock(time.monotonic() - began)}")
        if process.returncode:
            tail = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
            shown = "\n".join(f"  | {line}" for line in tail)
            raise ToolchainError(f"{label} failed (exit code {process.returncode}); the end of {log}:\n{shown}")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
