"""Runs Pulumi with a short report on the terminal, and its whole display in a file."""

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from stacks.engine import Engine
from stacks.preview import run
from stacks.preview.events import Resource
from stacks.preview.progress import Progress

_LOGS = Path("build") / "logs"
_LAST_LINES = 20
_CANCELS = "Pulumi completes the steps that it has begun. A second Ctrl-C ends it at once."


def follow(
    engine: Engine,
    command: str,
    flags: Sequence[str],
    planned: Mapping[str, Resource],
    look: Callable[[Progress], Iterable[str]],
) -> int:
    """Runs the command, and returns Pulumi's exit code. After a failure, the errors are on stderr in full.

    `planned` is the preview of the command. The lines of `look` are printed once each second.
    """
    log = _LOGS / f"{engine.stack}-{command}.log"
    progress, told = Progress(planned), list[str]()
    print(f"\n{command} {engine.stack}; all steps are in {log}", flush=True)

    def watch(events: Iterable[str], signalled: bool) -> None:
        lines = [*progress.add(events), *look(progress)]
        if signalled and not told:
            told.append(_CANCELS)
            lines += told
        _show(lines, progress.state())

    environment = engine.state_at_the_end()
    code = run.run_logged(engine, command, *flags, environment=environment, log=engine.root / log, watch=watch)
    _show([f"{command} {engine.stack}: {progress.summary()}"], "")
    if code:
        last = (engine.root / log).read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        print("\n".join(progress.reasons() or last), file=sys.stderr)
        print(f"make {command} has failed with {code}; after a repair, the same command goes on", file=sys.stderr)
    return code


def _show(lines: Iterable[str], state: str) -> None:
    """Prints lines. On a terminal, the state stays in the last line until there is a newer one."""
    before = after = ""
    if sys.stdout.isatty():
        before, after = "\r\x1b[K", state[: shutil.get_terminal_size().columns - 1]
    print(before + "".join(f"{line}\n" for line in lines) + after, end="", flush=True)
