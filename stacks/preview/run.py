"""Runs Pulumi's preview and gathers its events, quietly or under Pulumi's own display."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from stacks.preview import debug
from stacks.preview.events import Events, read
from stacks.preview.report import Run

# With these in ARGS somebody asks for Pulumi's own display.
_DISPLAYS = frozenset({"--diff", "--json", "-j", "--debug", "-d", "--urns", "--help", "-h"})

Watch = Callable[[Events], None]


def wants_pulumis_display(arguments: Sequence[str]) -> bool:
    names = {argument.partition("=")[0] for argument in arguments}
    return bool(names & _DISPLAYS) or any(name.startswith("--show-") for name in names)


def quietly(pulumi: Path, stack: str, arguments: Sequence[str], *, root: Path, watch: Watch) -> Run:
    """A preview whose events alone come out of Pulumi; `watch` is called after each."""
    command = [*_command(pulumi, stack, arguments), "--json", "--non-interactive", "--color", "never"]
    streaming = {"PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true"}
    events = Events()

    def follow(stdout: IO[str] | None) -> None:
        for line in stdout or ():
            events.add(line)
            watch(events)

    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
        ended = _run(command, streaming, root, follow, stderr)
        stderr.seek(0)
        said = stderr.read()
    return _result(stack, events, ended, said)


def displayed(pulumi: Path, stack: str, arguments: Sequence[str], *, root: Path) -> Run:
    """A preview under Pulumi's own display; the events come by a file and the flag that its automation API uses."""
    with tempfile.TemporaryDirectory(prefix="gpu-tenancy-preview-") as folder:
        log = Path(folder) / "events"
        log.touch()
        command = [*_command(pulumi, stack, arguments), "--suppress-progress", "--event-log", str(log)]
        ended = _run(command, {"PULUMI_DEBUG_COMMANDS": "true", **debug.wanted(arguments)}, root)
        with log.open(encoding="utf-8", errors="replace") as lines:
            events = read(lines)
    return _result(stack, events, ended, displayed=True)


@dataclass(frozen=True, kw_only=True)
class _Ended:
    code: int
    seconds: float
    interrupted: bool


def _result(stack: str, events: Events, ended: _Ended, stderr: str = "", *, displayed: bool = False) -> Run:
    return Run(
        stack=stack,
        events=events,
        code=ended.code,
        stderr=stderr,
        seconds=ended.seconds,
        interrupted=ended.interrupted or events.cancelled,  # its display reads Ctrl-C from the keyboard itself
        displayed=displayed,
    )


def _command(pulumi: Path, stack: str, arguments: Sequence[str]) -> list[str]:
    return [str(pulumi), "preview", "--stack", stack, *arguments]


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    root: Path,
    follow: Callable[[IO[str] | None], None] | None = None,
    stderr: IO[str] | None = None,
) -> _Ended:
    """Runs a command to its end. With `follow` it has no input, and its output goes there; else it has the terminal.

    A signal does not end it: on the first one Pulumi cancels and cleans up, on the second it stops at once, by itself.
    Ctrl-C reaches it from the terminal as it does us; a SIGTERM is for us alone, and handed on.
    """
    began = time.monotonic()
    received: list[int] = []
    to_hand_on: list[int] = []
    process: subprocess.Popen[str] | None = None

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if number == signal.SIGTERM:
            to_hand_on.append(number)
            hand_on()

    def hand_on() -> None:
        with suppress(IndexError):
            while process is not None:
                process.send_signal(to_hand_on.pop())

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with subprocess.Popen(
            command,
            cwd=root,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL if follow else None,
            stdout=subprocess.PIPE if follow else None,
            stderr=stderr,
            encoding="utf-8",
            errors="replace",
        ) as process:
            hand_on()  # what came while it started
            if follow is not None:
                follow(process.stdout)
            code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    code = code if code >= 0 else 128 - code  # ended by a signal; as the shell says it
    return _Ended(code=code, seconds=time.monotonic() - began, interrupted=bool(received))
