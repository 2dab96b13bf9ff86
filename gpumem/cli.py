"""Runs the command: parses the arguments, reads the cluster, prints a report and returns an exit code.

The modules of a report are imported only when a subcommand needs them. The modules that read a cluster are imported
while kubectl starts.
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
from gpumem.kubectl import Kubectl
from gpumem.report import DONE, FAILED, UNREAD, Report

if TYPE_CHECKING:
    from gpumem.draw import Paper
    from tenancy.ledger import Ledger

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"

# Returns a context manager for access to the API with these kubectl flags.
Reach = Callable[[list[str]], AbstractContextManager[Kubectl]]


def main(arguments: Sequence[str], environ: Mapping[str, str], reach: Reach = Kubectl) -> int:
    """Runs one command.

    Returns the exit code: 0 for success, 1 for a failure, 2 for a wrong command, and 3 if a pod waits.
    """
    given = parser().parse_args(arguments)
    try:
        return _run(given, environ, reach)
    except AgentError as error:
        print(f"gpumem: {error}", file=sys.stderr)
        return UNREAD if given.verb == "preflight" else FAILED


def _run(given: argparse.Namespace, environ: Mapping[str, str], reach: Reach) -> int:
    if given.verb in ("advise", "bill", "replay"):
        return _print(_past(given, reach), given, environ)
    stack = None
    if given.verb == "fit" and given.stack:
        from gpumem import live, stack_fit  # noqa: PLC0415

        stack = stack_fit.StackFile(given.stack, Path.cwd())
        if not given.live:
            return _print(live.fit_report(given, None, stack), given, environ)
    if given.verb in ("init", "preflight"):
        return _print(_before_a_rollout(given, reach), given, environ)
    with reach(kubectl_flags(given)) as kubectl:
        from gpumem import live  # noqa: PLC0415

        while True:
            code = _print(live.report(given, kubectl, stack), given, environ)
            if not getattr(given, "watch", False):
                return code
            gc.collect()
            time.sleep(given.interval)


def _past(given: argparse.Namespace, reach: Reach) -> Report:
    from gpumem import cluster, past  # noqa: PLC0415

    gc.enable()  # a replay of a week needs the garbage collector

    def ledger() -> "Ledger":
        with reach(kubectl_flags(given)) as kubectl:
            return cluster.ledger(kubectl, given.system_namespace)

    return past.report(given, ledger)


def _before_a_rollout(given: argparse.Namespace, reach: Reach) -> Report:
    with reach(kubectl_flags(given)) as kubectl:
        if given.verb == "preflight":
            from gpumem.preflight import command as preflight  # noqa: PLC0415

            return preflight.report(kubectl, given.stack, Path.cwd(), given.system_namespace)
        from gpumem.init import command as init  # noqa: PLC0415

        return init.report(
            kubectl, given.stack, Path.cwd(), prometheus=given.source, days=given.days, overwrite=given.overwrite
        )


def kubectl_flags(given: argparse.Namespace) -> list[str]:
    """Returns the flags that the command passes on to kubectl."""
    values = {flag: getattr(given, flag.replace("-", "_")) or () for flag in CONNECTION}
    return [f"--{flag}={value}" for flag, all_of in values.items() for value in all_of]


def text_of(arguments: Sequence[str], kubectl: Kubectl, paper: "Paper") -> str:
    """Returns the report of a subcommand as text. Raises AgentError."""
    from gpumem import live  # noqa: PLC0415

    found = live.report(parser().parse_args(arguments), kubectl)
    return found.text(found.found, paper)


def _print(report: Report, given: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints the report and returns its exit code."""
    from gpumem import output  # noqa: PLC0415
    from gpumem.draw import Paper  # noqa: PLC0415

    if given.output == "text":
        terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if terminal else 100
        colour = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        clear = _CLEAR if terminal and getattr(given, "watch", False) else ""
        text = clear + report.text(report.found, Paper(width, colour))
    elif given.output == "csv" and report.csv:
        text = report.csv(report.found)
    else:
        found = output.data(report.kind, report.found)
        again = "---\n" if getattr(given, "watch", False) else ""
        text = output.as_json(found) if given.output == "json" else again + output.as_yaml(found)
    sys.stdout.write(text)
    sys.stdout.flush()
    return report.code


def run() -> int:
    """Runs the command with the arguments of this process."""
    gc.disable()  # a garbage collection takes as long as reading the cluster and frees nothing
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGHUP, lambda number, frame: sys.exit(128 + signal.SIGHUP))
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr] # a terminal without block characters
    try:
        if os.path.basename(sys.argv[0]) == completion.PROGRAM:
            print("\n".join(completion.candidates(sys.argv[1:], parser())))
            return DONE
        return main(sys.argv[1:], os.environ)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # If the reader closes the pipe, as `| head` does, this is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
