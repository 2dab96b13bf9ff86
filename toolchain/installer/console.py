"""What the operator sees: one line a tool, and under it each long step with its elapsed time."""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

from toolchain.installer.errors import ToolchainError

LOG_LINES_SHOWN = 15
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
QUIET_SECONDS = 60  # without a terminal, a long step says once a minute that it lives


@dataclass(frozen=True)
class Console:
    stream: TextIO

    def line(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    @contextmanager
    def step(self, label: str) -> Iterator[Callable[[], None]]:
        """Shows a step and its elapsed time; the block calls what it is given about once a second."""
        started, spent = time.monotonic(), _children_seconds()
        terminal = self.stream.isatty()
        shown = started if terminal else started + QUIET_SECONDS

        def tick() -> None:
            nonlocal shown
            if time.monotonic() >= shown:
                line = f"    {label}  {_clock(time.monotonic() - started)}"
                self.stream.write(f"\r{line}" if terminal else f"{line} and counting\n")
                self.stream.flush()
                shown = time.monotonic() + (1 if terminal else QUIET_SECONDS)

        tick()
        try:
            yield tick
        finally:
            self.stream.write("\r" if terminal else "")
            cpu = _children_seconds() - spent
            self.line(f"    {label}  {_clock(time.monotonic() - started)}{f', CPU {_clock(cpu)}' if cpu >= 1 else ''}")


@dataclass(frozen=True)
class Runner:
    """Runs commands as steps; their output goes to the log, its last lines into the error."""

    console: Console
    log: Path

    def run(
        self, label: str, command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log, self.console.step(label) as tick:
            code = _complete(command, cwd, env, log, tick)
        if code != 0:
            raise ToolchainError(f"{label} failed (exit code {code}); the end of {self.log}:\n{self._tail()}")

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join(f"  | {line}" for line in lines)


def _complete(
    command: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None, log: IO[bytes], tick: Callable[[], None]
) -> int:
    """Runs a command to its end; in a process group of its own, so that a stop reaches its children too."""
    process = None
    try:
        with _signals_held():
            process = subprocess.Popen(
                command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)
            tick()
    except BaseException:
        if process is not None:
            with suppress(ProcessLookupError, PermissionError):  # what is already gone
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        raise
    return process.returncode


@contextmanager
def _signals_held() -> Iterator[None]:
    """Keeps an interruption back until the process that is being started is known, and so can be ended."""
    held: list[int] = []
    handlers = {number: signal.signal(number, lambda number, _: held.append(number)) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for stop in held:
        signal.raise_signal(stop)


def _children_seconds() -> float:
    """The CPU time of the commands that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
