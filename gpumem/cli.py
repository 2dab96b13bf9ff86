"""Runs the command: parses the arguments, reads the cluster, prints a report and returns an exit code.

A subcommand imports the modules of its report only when it needs them. The command imports the modules that read a
cluster while kubectl starts.
"""

import argparse
import gc
import http.client
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from agents.kube.errors import ApiError
from agents.kube.kubectl import Kubectl
from agents.runtime.errors import AgentError
from gpumem.arguments import CONNECTION, parser, verb_first
from gpumem.paper import Paper
from gpumem.report import DONE, FAILED, Report, said
from tenancy.names import OPERATOR, VIEWER

if TYPE_CHECKING:
    from tenancy.ledger import Ledger

# kubectl proxy answers with status 500 and this text if it cannot connect to the API server.
_UNREACHED = "dial tcp"
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"

# Returns a context manager for access to the API with these kubectl flags.
Reach = Callable[[list[str]], AbstractContextManager[Kubectl]]


def main(arguments: Sequence[str], environ: Mapping[str, str], reach: Reach = Kubectl) -> int:
    """Runs one command.

    Returns the exit code: 0 for success, 1 for a failure, 2 for a wrong command, and 3 if a pod waits.
    """
    top = parser()
    if not arguments:
        top.print_help()
        return DONE
    given = top.parse_args(verb_first(top, arguments))
    try:
        return _run(given, environ, reach)
    except AgentError as error:
        complain(error)
        return FAILED


def complain(error: AgentError) -> None:
    """Prints what went wrong, and whom to ask for a missing right."""
    print(f"gpumem: {_unreached(error) or f'{said(error)}{_remedy(error)}'}", file=sys.stderr)


def _unreached(error: AgentError) -> str:
    """Returns one sentence if kubectl reaches no cluster, or "" for any other error."""
    if not isinstance(error, ApiError) or _UNREACHED not in error.message:
        return ""
    reason = error.message[error.message.index(_UNREACHED) :].strip()
    return f"kubectl reaches no cluster ({reason}); name one with --context or KUBECONFIG"


def _remedy(error: AgentError) -> str:
    if not isinstance(error, ApiError) or error.status != http.client.FORBIDDEN:
        return ""
    return f"; `readers` in the stack file gives the ClusterRoles {VIEWER} and, for all tenants, {OPERATOR}"


def _run(given: argparse.Namespace, environ: Mapping[str, str], reach: Reach) -> int:
    if check := {"fit": _check_fit, "who": _check_who}.get(given.verb):
        check(given)
    if (made := _of_no_live_cluster(given, reach)) is not None:
        return show(made, given, environ)
    stack = None
    if given.verb == "fit" and given.stack:
        from gpumem import live, stack_fit  # noqa: PLC0415

        stack = stack_fit.StackFile(given.stack, Path.cwd())
        if not given.live:
            return show(live.fit_report(given, None, stack), given, environ)
    with reach(kubectl_flags(given)) as kubectl:
        if given.verb == "board":
            from gpumem import board_server  # noqa: PLC0415

            board_server.serve(given, kubectl)
            return DONE
        from gpumem import live  # noqa: PLC0415

        if not getattr(given, "watch", False):
            return show(live.report(given, kubectl, stack), given, environ)
        while True:
            try:
                show(live.report(given, kubectl, stack), given, environ)
            except AgentError as error:
                print(f"gpumem: {said(error)}; the next try is in {given.interval} s", file=sys.stderr)
            gc.collect()
            time.sleep(given.interval)


def _of_no_live_cluster(given: argparse.Namespace, reach: Reach) -> Report | None:
    """Returns the report of a verb that does not show the cluster's present state, or None for another verb."""
    match given.verb:
        case "advise" | "bill":
            return _past(given, reach)
        case "who" if given.since:
            return _past(given, reach)
        case "init":
            return _init(given, reach)
        case "estimate":
            from gpumem import estimate  # noqa: PLC0415

            return estimate.report(given)
    return None


def _check_who(given: argparse.Namespace) -> None:
    """Ends the command if its arguments do not belong together."""
    if bool(given.since) != bool(given.source):
        given.refuse("--since and --from belong together: give the days, and the Prometheus that has recorded them")
    if given.since and (given.node or given.selector or given.sort_by or given.watch):
        given.refuse("--since reports on seats: leave out --node, --selector, --sort-by and --watch")


def _check_fit(given: argparse.Namespace) -> None:
    """Ends the command if its arguments do not belong together."""
    new = (given.mib, given.pool, given.tenant, given.stack, given.replicas > 1, given.gpu_count > 1, given.namespace)
    if given.without and any(new):
        given.refuse("--without judges the pods of a node: leave out MIB, and the flags that are about new pods")
    if not given.without and given.mib is None:
        given.refuse("say how many MIB a new pod needs, or name a node with --without")
    if given.live and not given.stack:
        given.refuse("--live needs --stack: without a stack file, fit always reads the cluster")


def _past(given: argparse.Namespace, reach: Reach) -> Report:
    from gpumem import cluster, past  # noqa: PLC0415

    gc.enable()  # a history of weeks needs the garbage collector

    def ledger() -> "Ledger":
        with reach(kubectl_flags(given)) as kubectl:
            return cluster.ledger(kubectl, given.system_namespace)

    return past.report(given, ledger)


def _init(given: argparse.Namespace, reach: Reach) -> Report:
    from gpumem.init import command as init  # noqa: PLC0415
    from gpumem.prometheus import access  # noqa: PLC0415

    if given.from_git:
        return init.report_of_folder(Path(given.from_git), given.stack, Path.cwd(), overwrite=given.overwrite)
    with reach(kubectl_flags(given)) as kubectl:
        return init.report(
            kubectl,
            given.stack,
            Path.cwd(),
            prometheus=given.source,
            days=given.days,
            overwrite=given.overwrite,
            access=access(given),
        )


def kubectl_flags(given: argparse.Namespace) -> list[str]:
    """Returns the flags that the command passes on to kubectl."""
    values = {flag: getattr(given, flag.replace("-", "_")) or () for flag in CONNECTION}
    return [f"--{flag}={value}" for flag, all_of in values.items() for value in all_of]


def text_of(arguments: Sequence[str], kubectl: Kubectl, paper: Paper) -> str:
    """Returns the report of a subcommand as text. Raises AgentError."""
    from gpumem import live  # noqa: PLC0415

    found = live.report(parser().parse_args(arguments), kubectl)
    return found.text(found.found, paper)


def show(report: Report, given: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints a report in the format of the flag -o, and returns its exit code."""
    from gpumem import output  # noqa: PLC0415

    if given.output == "text":
        terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if terminal else 100
        colour = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        clear = _CLEAR if terminal and getattr(given, "watch", False) else ""
        text = clear + report.text(report.found, Paper(width, colour, not getattr(given, "no_headers", False)))
    elif given.output == "csv" and report.csv:
        text = report.csv(report.found)
    else:
        found = output.data(report.kind, report.found)
        again = "---\n" if getattr(given, "watch", False) else ""
        text = output.as_json(found) if given.output == "json" else again + output.as_yaml(found)
    sys.stdout.write(text)
    sys.stdout.flush()
    return report.code


def run(command: Callable[[Sequence[str], Mapping[str, str]], int] = main) -> int:
    """Runs a command with the arguments of this process."""
    gc.disable()  # A garbage collection would take as long as reading the cluster, and would free nothing.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGHUP, lambda number, frame: sys.exit(128 + signal.SIGHUP))
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr] # a terminal without block characters
    try:
        return command(sys.argv[1:], os.environ)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # A reader of the output may close the pipe, as `| head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
