"""The command: arguments, the cluster, a report, an exit code.

A report's modules are imported when it is asked for, and those of the cluster's while kubectl starts.
"""

import argparse
import gc
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from agents.runtime.errors import AgentError
from gpumem import completion
from gpumem.arguments import CONNECTION, parser
from gpumem.kubectl import Kubectl, Session
from gpumem.report import DONE, FAILED, Report

if TYPE_CHECKING:
    from gpumem.draw import Paper
    from tenancy.ledger import Ledger

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"

# From kubectl's flags to the API, for as long as the block lasts.
Reach = Callable[[list[str]], AbstractContextManager[Session]]


def main(arguments: Sequence[str], environ: Mapping[str, str], reach: Reach = Kubectl) -> int:
    """The exit code: 0, 1 where it failed, 2 for a wrong command, 3 where something does not run."""
    if arguments[:1] == ["__complete"]:
        print("\n".join(completion.candidates(arguments[1:], parser())))
        return DONE
    given = parser().parse_args(arguments)
    if given.verb == "completion":
        print(completion.SCRIPTS[given.shell])
        return DONE
    try:
        return _run(given, environ, reach)
    except AgentError as error:
        print(f"gpumem: {error}", file=sys.stderr)
        return FAILED


def _run(given: argparse.Namespace, environ: Mapping[str, str], reach: Reach) -> int:
    if given.verb in ("advise", "bill", "replay"):
        return _print(_past(given, reach), given, environ)
    stack = None
    if given.verb == "fit" and given.stack:
        from gpumem import live, stack_fit  # noqa: PLC0415

        stack = stack_fit.StackFile(given.stack, Path.cwd())
        if not given.live:
            return _print(live.fit_report(given, None, stack), given, environ)
    with reach(_connection(given)) as kubectl:
        from gpumem import live  # noqa: PLC0415

        while True:
            code = _print(live.report(given, kubectl, stack), given, environ)
            if not getattr(given, "watch", False):
                return code
            gc.collect()
            time.sleep(given.interval)


def _past(given: argparse.Namespace, reach: Reach) -> Report:
    from gpumem import cluster, past  # noqa: PLC0415

    gc.enable()  # to play a week leaves much of it

    def ledger() -> "Ledger":
        with reach(_connection(given)) as kubectl:
            return cluster.ledger(kubectl, given.system_namespace)

    return past.report(given, ledger)


def _connection(given: argparse.Namespace) -> list[str]:
    """kubectl's own flags."""
    values = {flag: getattr(given, flag.replace("-", "_")) or () for flag in CONNECTION}
    return [f"--{flag}={value}" for flag, all_of in values.items() for value in all_of]


def text_of(arguments: Sequence[str], kubectl: Kubectl, paper: "Paper") -> str:
    """What a verb prints for people. Raises AgentError."""
    from gpumem import live  # noqa: PLC0415

    return live.report(parser().parse_args(arguments), kubectl).text(paper)


def _print(report: Report, given: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """The report's exit code."""
    from gpumem import output  # noqa: PLC0415
    from gpumem.draw import Paper  # noqa: PLC0415

    watched = getattr(given, "watch", False)
    if given.output == "text":
        terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if terminal else 100
        colour = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        text = (_CLEAR if watched and terminal else "") + report.text(Paper(width, colour))
    elif given.output == "csv" and report.csv:
        text = report.csv()
    elif given.output == "json":
        text = output.as_json(output.data(report.kind, report.found))
    else:
        text = ("---\n" if watched else "") + output.as_yaml(output.data(report.kind, report.found))
    sys.stdout.write(text)
    sys.stdout.flush()
    return report.code


def run() -> int:
    """Of this process."""
    gc.disable()  # what is read of a cluster is kept to the end: looking for garbage in it takes as long as reading it
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGHUP, lambda number, frame: sys.exit(128 + signal.SIGHUP))
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr] # a terminal without block characters
    arguments = sys.argv[1:]
    if os.path.basename(sys.argv[0]) == completion.PROGRAM:
        arguments = ["__complete", *arguments]
    try:
        return main(arguments, os.environ)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `| head` is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
