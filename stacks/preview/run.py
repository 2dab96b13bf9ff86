"""Runs Pulumi. Reads the events of a preview, with or without Pulumi's own display."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO

from stacks.engine import Engine
from stacks.preview.events import Events, read
from stacks.preview.report import PreviewOutcome

# Flags in ARGS with which the operator asks for Pulumi's own display.
_DISPLAYS = frozenset({"--diff", "--json", "-j", "--debug", "-d", "--urns", "--help", "-h"})

_BETWEEN_SECONDS = 1.0  # The time between two calls of `is_vain`.


def wants_pulumis_display(arguments: Sequence[str]) -> bool:
    names = {argument.partition("=")[0] for argument in arguments}
    return bool(names & _DISPLAYS) or any(name.startswith("--show-") for name in names)


def preview_quietly(engine: Engine, flags: Sequence[str]) -> PreviewOutcome:
    """Runs a preview in which Pulumi prints only the events."""
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


def preview_displayed(engine: Engine, flags: Sequence[str]) -> PreviewOutcome:
    """Runs a preview under Pulumi's own display.

    Pulumi writes the events to a file with the same flag that Pulumi's automation API uses.
    """
    with tempfile.TemporaryDirectory(prefix="gpu-tenancy-preview-") as folder:
        log = Path(folder) / "events"
        log.touch()
        command = [*_command(engine, "preview", flags), "--suppress-progress", "--event-log", str(log)]
        ended = _run(engine, command, {"PULUMI_DEBUG_COMMANDS": "true"})
        with log.open(encoding="utf-8", errors="replace") as lines:
            return replace(ended, events=read(lines), displayed=True)


def run_attended(
    engine: Engine,
    command: str,
    *flags: str,
    environment: Mapping[str, str] | None = None,
    is_vain: Callable[[], bool] | None = None,
) -> int:
    """Runs a Pulumi command on the terminal, with the variables of `environment` too. Returns Pulumi's exit code.

    Calls `is_vain` each second, and cancels the command if `is_vain` returns True.
    """
    sys.stdout.flush()
    return _run(engine, _command(engine, command, flags), environment or {}, is_vain=is_vain).code


def _command(engine: Engine, command: str, flags: Sequence[str]) -> list[str]:
    return [str(engine.pulumi), command, "--stack", engine.stack, *flags]


def _run(
    engine: Engine,
    command: Sequence[str],
    environment: Mapping[str, str],
    follow: Callable[[IO[str] | None], None] | None = None,
    stderr: IO[str] | None = None,
    *,
    is_vain: Callable[[], bool] | None = None,
) -> PreviewOutcome:
    """Runs a command until it ends.

    With `follow`, the command has no input, and the function `follow` reads the command's output. Without `follow`, the
    command reads and writes the terminal. A signal does not end the process of `make`. On the first signal, Pulumi
    cancels the command and cleans up. On the second signal, Pulumi ends the command at once. Ctrl-C on the terminal
    reaches this process and Pulumi. SIGTERM reaches only this process, which then sends SIGTERM to Pulumi.
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
            if signal.SIGTERM in received:  # the signal came while the command was starting
                process.send_signal(signal.SIGTERM)
            if follow is not None:
                follow(process.stdout)
            while is_vain is not None and process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_BETWEEN_SECONDS)
                if process.poll() is None and is_vain():
                    print("cancels Pulumi, because it would wait in vain", flush=True)
                    process.send_signal(signal.SIGINT)
                    break
            code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    code = code if code >= 0 else 128 - code  # the exit code that a shell reports for a process that a signal ended
    return PreviewOutcome(
        stack=engine.stack, events=Events(), code=code, seconds=time.monotonic() - began, signalled=bool(received)
    )
