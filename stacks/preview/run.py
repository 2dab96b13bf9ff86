"""Runs Pulumi. Reads the engine's events, with or without Pulumi's own display."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO

from stacks.engine import Engine
from stacks.preview.events import Events, read
from stacks.preview.report import PreviewOutcome

# Flags in ARGS with which the operator asks for Pulumi's own display.
_DISPLAYS = frozenset({"--diff", "--json", "-j", "--debug", "-d", "--urns", "--help", "-h"})

_WITH_EVENT_LOG = {"PULUMI_DEBUG_COMMANDS": "true"}  # Only with it, Pulumi has the flag --event-log.
_BETWEEN_SECONDS = 1.0  # The time between two looks at the events.


def wants_pulumis_display(arguments: Sequence[str]) -> bool:
    names = {argument.partition("=")[0] for argument in arguments}
    return bool(names & _DISPLAYS) or any(name.startswith("--show-") for name in names)


def preview_quietly(engine: Engine, command: str, *flags: str) -> PreviewOutcome:
    """Runs a preview in which Pulumi prints only the events."""
    given = [*_command(engine, command, flags), "--json", "--non-interactive", "--color", "never"]
    streaming = {"PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true"}
    events = Events()

    def follow(process: subprocess.Popen[str], _: Sequence[int]) -> None:
        for line in process.stdout or ():
            events.add(line)

    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
        ended = _run(engine, given, streaming, follow, stdout=subprocess.PIPE, stderr=stderr)
        stderr.seek(0)
        return replace(ended, events=events, stderr=stderr.read())


def preview_displayed(engine: Engine, command: str, *flags: str) -> PreviewOutcome:
    """Runs a preview under Pulumi's own display."""
    with _event_log() as log:
        given = [*_command(engine, command, flags), "--suppress-progress", "--event-log", log.name]
        ended = _run(engine, given, _WITH_EVENT_LOG)
        return replace(ended, events=read(_new_lines(log)), displayed=True)


def run_attended(engine: Engine, command: str, *flags: str, environment: Mapping[str, str] | None = None) -> int:
    """Runs a Pulumi command on the terminal, with the variables of `environment` too. Returns Pulumi's exit code."""
    sys.stdout.flush()
    return _run(engine, _command(engine, command, flags), environment or {}).code


def run_logged(
    engine: Engine,
    command: str,
    *flags: str,
    environment: Mapping[str, str],
    log: Path,
    watch: Callable[[Iterable[str], bool], None],
) -> int:
    """Runs a Pulumi command whose display goes into the file `log`. Returns Pulumi's exit code.

    Calls `watch` each second, and after the end, with the new lines of the event stream, and with True after a signal.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as display, _event_log() as events:

        def follow(process: subprocess.Popen[str], received: Sequence[int]) -> None:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_BETWEEN_SECONDS)
                watch(_new_lines(events), bool(received))

        given = [*_command(engine, command, flags), "--suppress-progress", "--event-log", events.name]
        return _run(engine, given, {**environment, **_WITH_EVENT_LOG}, follow, stdout=display, stderr=display).code


@contextmanager
def _event_log() -> Iterator[IO[bytes]]:
    """Opens a file for the events. Pulumi writes it for the same flag that Pulumi's automation API uses."""
    with tempfile.TemporaryDirectory(prefix="gpu-tenancy-events-") as folder:
        log = Path(folder) / "events"
        log.touch()
        with log.open("rb") as lines:
            yield lines


def _new_lines(log: IO[bytes]) -> Iterator[str]:
    """Yields the complete lines that have not been read yet."""
    while (line := log.readline()).endswith(b"\n"):
        yield line.decode(errors="replace")
    log.seek(-len(line), os.SEEK_CUR)


def _command(engine: Engine, command: str, flags: Sequence[str]) -> list[str]:
    return [str(engine.pulumi), command, "--stack", engine.stack, *flags]


def _run(
    engine: Engine,
    command: Sequence[str],
    environment: Mapping[str, str],
    follow: Callable[[subprocess.Popen[str], Sequence[int]], None] | None = None,
    *,
    stdout: IO[str] | int | None = None,
    stderr: IO[str] | None = None,
) -> PreviewOutcome:
    """Runs a command until it ends.

    With `follow`, the command has no input. The function `follow` gets the process, and a list of the signals that have
    come. Without `follow`, the command reads and writes the terminal. A signal does not end this process. On the first
    signal, Pulumi cancels the command and cleans up. On the second signal, Pulumi ends the command at once. Ctrl-C on
    the terminal reaches this process and Pulumi. SIGTERM reaches only this process, which then sends SIGTERM to Pulumi.
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
            stdout=stdout,
            stderr=stderr,
            encoding="utf-8",
            errors="replace",
        ) as process:
            if signal.SIGTERM in received:  # the signal came while the command was starting
                process.send_signal(signal.SIGTERM)
            if follow is not None:
                follow(process, received)
            code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    code = code if code >= 0 else 128 - code  # the exit code that a shell reports for a process that a signal ended
    return PreviewOutcome(
        stack=engine.stack, events=Events(), code=code, seconds=time.monotonic() - began, signalled=bool(received)
    )
