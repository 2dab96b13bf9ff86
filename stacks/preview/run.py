"""Runs Pulumi. Of a preview it gathers the events, quietly or under Pulumi's own display."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO

from stacks.engine import Engine
from stacks.preview import debug
from stacks.preview.events import Events, read
from stacks.preview.report import Run

# With these in ARGS somebody asks for Pulumi's own display.
_DISPLAYS = frozenset({"--diff", "--json", "-j", "--debug", "-d", "--urns", "--help", "-h"})


def wants_pulumis_display(arguments: Sequence[str]) -> bool:
    names = {argument.partition("=")[0] for argument in arguments}
    return bool(names & _DISPLAYS) or any(name.startswith("--show-") for name in names)


def quietly(engine: Engine, flags: Sequence[str]) -> Run:
    """A preview of which Pulumi prints the events alone."""
    command = [*_command(engine, "preview", flags), "--json", "--non-interactive", "--color", "never"]
    streaming = {"PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true"}
    events = Events()

    def follow(stdout: IO[str] | None) -> None:
        for line in stdout or ():
            events.add(line)

    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
        ended = _run(engine, command, streaming, follow, stderr)
        stderr.seek(0)
        return replace(ended, events=events, stderr=stderr.read())


def displayed(engine: Engine, flags: Sequence[str]) -> Run:
    """A preview under Pulumi's own display; the events come by a file and the flag that its automation API uses."""
    with tempfile.TemporaryDirectory(prefix="gpu-tenancy-preview-") as folder:
        log = Path(folder) / "events"
        log.touch()
        command = [*_command(engine, "preview", flags), "--suppress-progress", "--event-log", str(log)]
        ended = _run(engine, command, {"PULUMI_DEBUG_COMMANDS": "true", **debug.debug_environment(flags)})
        with log.open(encoding="utf-8", errors="replace") as lines:
            return replace(ended, events=read(lines), displayed=True)


def attended(engine: Engine, command: str, *flags: str) -> int:
    """Runs a command of Pulumi's on the terminal. Returns its exit code."""
    sys.stdout.flush()
    return _run(engine, _command(engine, command, flags), {}).code


def _command(engine: Engine, command: str, flags: Sequence[str]) -> list[str]:
    return [str(engine.pulumi), command, "--stack", engine.stack, *flags]


def _run(
    engine: Engine,
    command: Sequence[str],
    environment: Mapping[str, str],
    follow: Callable[[IO[str] | None], None] | None = None,
    stderr: IO[str] | None = None,
) -> Run:
    """Runs a command to its end. With `follow` it has no input, and its output goes there; else it has the terminal.

    A signal does not end this process. On the first one Pulumi cancels and cleans up, on the second it stops at once.
    Ctrl-C reaches both from the terminal; a SIGTERM reaches this process alone, which passes it on.
    """
    began = time.monotonic()
    received: list[int] = []
    process: subprocess.Popen[str] | None = None

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if number == signal.SIGTERM and process is not None:
            process.send_signal(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with subprocess.Popen(
            command,
            cwd=engine.root,
            env={**engine.environment, **environment},
            stdin=subprocess.DEVNULL if follow else None,
            stdout=subprocess.PIPE if follow else None,
            stderr=stderr,
            encoding="utf-8",
            errors="replace",
        ) as process:
            if signal.SIGTERM in received:  # it came while the process started
                process.send_signal(signal.SIGTERM)
            if follow is not None:
                follow(process.stdout)
            code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    code = code if code >= 0 else 128 - code  # ended by a signal; as the shell reports it
    return Run(
        stack=engine.stack, events=Events(), code=code, seconds=time.monotonic() - began, signalled=bool(received)
    )
