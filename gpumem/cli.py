"""The command: arguments, the cluster, a report, an exit code."""

import argparse
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from agents.runtime.errors import AgentError
from gpumem import advise, checkout, cluster, completion, history, host_memory, output, plot, replay, stack_fit
from gpumem.bill import bill, bill_text
from gpumem.checkout import CheckoutError
from gpumem.cluster import Cluster
from gpumem.draw import Paper, free_text, who_text, why_text
from gpumem.draw_fit import fit_text
from gpumem.evidence import gather, target_of
from gpumem.fit import fit
from gpumem.focus import bill_csv
from gpumem.free import free
from gpumem.kubectl import Kubectl, Source
from gpumem.who import Filter, check_pool, who
from gpumem.why import why
from tenancy.fit.plan import Wanted
from tenancy.ledger import Ledger

DONE, FAILED, USAGE, WAITS = 0, 1, 2, 3
SYSTEM_NAMESPACE = "gpu-tenancy-system"
# What is handed on to kubectl.
CONNECTION = {
    "context": "the kubeconfig's context to use",
    "cluster": "the kubeconfig's cluster to use",
    "user": "the kubeconfig's user to use",
    "kubeconfig": "the kubeconfig's path",
    "as": "a user to impersonate",
    "as-group": "a group to impersonate; may be given several times",
}
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"

WHO = """examples:
  kubectl gpumem who                     everything
  kubectl gpumem who -n immich           one namespace's pods
  kubectl gpumem who --pool t4 --watch   one pool, every two seconds
  kubectl gpumem who -o json | jq '.nodes[].devices[] | {uuid, room_mib}'
"""
FREE = """examples:
  kubectl gpumem free
  kubectl gpumem free --pool t4
  kubectl gpumem free -o json | jq '[.pools[].largest_room_mib] | max'
"""
WHY = """examples:
  kubectl gpumem why -n immich immich-ml-5d8f7c-x2x9w
  kubectl gpumem why -n tts deployment/tts
  kubectl gpumem why -n team-a job/train -o json | jq -r '.answers[].reason'
"""
FIT = """examples:
  kubectl gpumem fit 4000                            one device with 4000 MiB, in any pool
  kubectl gpumem fit 4000 --pool t4 --replicas 2
  kubectl gpumem fit 40000 --gpu-count 8             8 devices of one node, 40000 MiB of each
  kubectl gpumem fit 3000 -o json | jq '.pools[0].devices.changes'
  make gpumem ARGS="fit 4000 --stack prod"           of a stack file, with what to write into it
  make gpumem ARGS="fit 4000 --stack prod --live"    and on the cluster's devices
"""
BILL = """examples:
  kubectl gpumem bill --from http://localhost:9090 --currency EUR
  kubectl gpumem bill --from http://localhost:9090 --currency EUR --month 2026-11 -o csv > 2026-11.csv
"""
ADVISE = """examples:
  kubectl -n monitoring port-forward svc/prometheus-operated 9090 &
  kubectl gpumem advise --from http://localhost:9090
  make gpumem ARGS="advise --from http://localhost:9090 --stack prod"
  make gpumem ARGS="advise --from http://localhost:9090 --stack prod -o json" | jq -j .patch | git apply
  make gpumem ARGS="advise --from http://localhost:9090 --stack prod --host-memory"
  make gpumem ARGS="advise --from use.csv --stack prod --plot pictures"
"""
REPLAY = """examples:
  make gpumem ARGS="replay --from http://localhost:9090"                          last week under prod
  make gpumem ARGS="replay --from http://localhost:9090 --stack changed.yaml"     and under a changed file
  make gpumem ARGS="replay --from use.csv --today prod --stack changed.yaml -o json"
"""


@dataclass(frozen=True)
class Report:
    """What a verb found: for people, for programs, and the exit code."""

    text: Callable[[Paper], str]
    kind: str
    found: Any
    code: int = DONE
    csv: Callable[[], str] | None = None


class Session(Source, Protocol):
    """The API, and the namespace of the context in use."""

    def namespace(self) -> str:
        """Whose pods, where nothing else is said."""


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


def parser() -> argparse.ArgumentParser:
    """All verbs and their flags."""
    top = argparse.ArgumentParser(
        prog="kubectl gpumem",
        description="Who has which GPU memory, what is free, why a pod waits, what budgets should be, and their cost.",
        epilog="exit codes: 0 done, 1 failed, 2 wrong command; 3 of why: something does not run; of advise: a budget "
        "is too small; of fit: it does not fit now",
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    found = _verb(verbs, "who", "which pod has how much of which device, and who waits", WHO)
    found.add_argument("--node", help="of one node")
    found.add_argument("--pool", help="of one pool")
    found.add_argument("--device", help="of one device, by its index or UUID")
    _watch(found)
    found = _verb(verbs, "free", "what is free, by the ledger and as measured", FREE)
    found.add_argument("--pool", help="of one pool")
    _watch(found)
    found = _verb(verbs, "why", "what keeps a pod, or a workload's pods, from running", WHY)
    found.add_argument("target", metavar="POD | deployment/NAME | statefulset/NAME | job/NAME")
    found = _verb(verbs, "advise", "which budgets a history of use asks for, and at which risk", ADVISE)
    _history(found)
    found.add_argument(
        "--plot", metavar="FOLDER", help="draw each seat's use, budget and proposal there; needs matplotlib"
    )
    found.add_argument(
        "--plot-format", choices=plot.FORMATS, default=plot.FORMATS[0], help=f"default: {plot.FORMATS[0]}"
    )
    found.add_argument("--host-memory", action="store_true", help="of the stack's memory pools instead of GPUs' seats")
    days = f"of history; default: {advise.DAYS}, of host memory {host_memory.DAYS}"
    found.add_argument("--days", type=_days, help=days)
    found = _verb(verbs, "bill", "what each tenant had and used of a month, and its cost", BILL, ("csv",))
    _history(found)
    found.add_argument("--month", help="such as 2026-11 (UTC); default: the last whole one")
    found.add_argument("--currency", type=_currency, help="of the pools' prices, such as EUR")
    _fit(_verb(verbs, "fit", "where new pods fit, and the least change after which they do", FIT))
    found = _plain(verbs, "replay", "a history of use, played under a stack file and under a changed one", REPLAY)
    found.add_argument("--from", dest="source", required=True, help="Prometheus' http(s) address, or a CSV file")
    found.add_argument("--today", default="prod", help="NAME of Pulumi.NAME.yaml, or a file; default: prod")
    found.add_argument("--stack", help="the change: a NAME or a file as well; default: today's alone")
    found.add_argument("--days", type=_days, default=replay.DAYS, help=f"of history; default: {replay.DAYS}")
    found = verbs.add_parser("completion", help="print a completion script", description=completion.HELP)
    found.add_argument("shell", choices=sorted(completion.SCRIPTS))
    return top


def _plain(verbs: Any, name: str, text: str, examples: str, more: Sequence[str] = ()) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("-o", "--output", choices=("text", "json", "yaml", *more), default="text", help="default: text")
    return made


def _verb(verbs: Any, name: str, text: str, examples: str, more: Sequence[str] = ()) -> argparse.ArgumentParser:
    """One that asks a cluster."""
    made = _plain(verbs, name, text, examples, more)
    made.add_argument("-n", "--namespace", help="of one namespace's pods; without rights on others: whose")
    made.add_argument(
        "--system-namespace", default=SYSTEM_NAMESPACE, help=f"where the ledger is; default: {SYSTEM_NAMESPACE}"
    )
    connection = made.add_argument_group("connection, as kubectl has it")
    for flag, meaning in CONNECTION.items():
        connection.add_argument(f"--{flag}", action="append", help=meaning, metavar=flag.upper())
    return made


def _fit(made: argparse.ArgumentParser) -> None:
    made.add_argument("mib", metavar="MIB", type=_mib, help="on each device that a pod asks for")
    made.add_argument("--pool", help="of one pool")
    made.add_argument("--replicas", type=_count, default=1, help="so many pods; default: 1")
    made.add_argument("--gpu-count", type=_count, default=1, help="devices of one node for each pod; default: 1")
    made.add_argument(
        "--tenant", type=_tenant, help="whose they are; with a seat of just that size nothing new is promised"
    )
    made.add_argument("--stack", help="by Pulumi.STACK.yaml of this folder instead of the cluster's ledger")
    made.add_argument("--live", action="store_true", help="with --stack: on the cluster's devices as well")


def _mib(text: str) -> int:
    return _whole(text, 2**24, "MiB")


def _count(text: str) -> int:
    return _whole(text, 10_000, "")


def _whole(text: str, most: int, unit: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= most):
        what = f"a whole number{f' of {unit}' if unit else ''}"
        raise argparse.ArgumentTypeError(f"{text!r}: must be {what} from 1 to {most}")
    return int(text)


def _history(made: argparse.ArgumentParser) -> None:
    made.add_argument("--from", dest="source", required=True, help="Prometheus' http(s) address, or a CSV file")
    made.add_argument("--stack", help="of Pulumi.STACK.yaml, in the checkout; default: of the cluster's ledger")


def _watch(made: argparse.ArgumentParser) -> None:
    made.add_argument("-w", "--watch", action="store_true", help="again and again, until it is interrupted")
    made.add_argument("--interval", type=_seconds, default=2.0, help="seconds between two looks; default: 2")


def _days(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,3}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number from 1 to 9999")
    return int(text)


def _currency(text: str) -> str:
    if not re.fullmatch("[A-Z]{3}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a code of ISO 4217, such as EUR")
    return text


def _tenant(text: str) -> str:
    if not re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a namespace's name, such as team-a")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.2 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number of seconds from 0.2 to 3600")
    return seconds


def _run(given: argparse.Namespace, environ: Mapping[str, str], reach: Reach) -> int:
    if given.verb in ("advise", "bill"):
        report = _advised(given, reach) if given.verb == "advise" else _billed(given, reach)
        _print(report, given, environ)
        return report.code
    if given.verb == "replay":
        _print(_replayed(given), given, environ)
        return DONE
    stack = stack_fit.StackFile(given.stack, Path.cwd()) if given.verb == "fit" and given.stack else None
    if stack and not given.live:
        report = _fit_report(given, None, stack)
        _print(report, given, environ)
        return report.code
    with reach(_connection(given)) as kubectl:
        while True:
            report = _report(given, kubectl, stack)
            _print(report, given, environ)
            if not getattr(given, "watch", False):
                return report.code
            time.sleep(given.interval)


def _advised(given: argparse.Namespace, reach: Reach) -> Report:
    stack = advise.stack_of(given.stack)
    if given.host_memory:
        if stack is None:
            raise CheckoutError("--host-memory needs the stack file that declares the pools: give --stack as well")
        pools = host_memory.advised(given.source, stack, days=given.days or host_memory.DAYS)
        code = DONE if pools.fine else WAITS
        return Report(lambda paper: host_memory.advised_text(pools, paper), "host-memory", pools, code)
    ledger = stack.ledger if stack else _ledger(given, reach)
    uses = history.read(given.source, ledger, days=given.days or advise.DAYS, now=time.time())
    found = advise.advised(uses, ledger, stack=stack, namespace=given.namespace)
    if given.plot:
        plot.write(uses.samples, found.seats, Path(given.plot), given.plot_format)
    return Report(lambda paper: advise.advised_text(found, paper), "advise", found, DONE if found.fine else WAITS)


def _billed(given: argparse.Namespace, reach: Reach) -> Report:
    stack = advise.stack_of(given.stack)
    ledger = stack.ledger if stack else _ledger(given, reach)
    found = bill(given.source, ledger, month=given.month, currency=given.currency, now=datetime.now(UTC))
    if given.namespace:
        found = replace(found, charges=tuple(each for each in found.charges if each.tenant == given.namespace))
    return Report(lambda paper: bill_text(found, paper), "bill", found, csv=lambda: bill_csv(found))


def _replayed(given: argparse.Namespace) -> Report:
    files = checkout.files([given.today, *([given.stack] if given.stack else [])], Path.cwd())
    pods = replay.read(given.source, days=given.days, now=time.time())
    found = replay.replay(pods, checkout.replayed(files, pods))
    return Report(lambda paper: replay.replay_text(found, paper), "replay", found)


def _ledger(given: argparse.Namespace, reach: Reach) -> Ledger:
    """The cluster's."""
    with reach(_connection(given)) as kubectl:
        return cluster.ledger(kubectl, given.system_namespace)


def _connection(given: argparse.Namespace) -> list[str]:
    """kubectl's own flags."""
    values = {flag: getattr(given, flag.replace("-", "_")) or () for flag in CONNECTION}
    return [f"--{flag}={value}" for flag, all_of in values.items() for value in all_of]


def _report(given: argparse.Namespace, kubectl: Session, stack: stack_fit.StackFile | None = None) -> Report:
    def namespace() -> str:
        return given.namespace or kubectl.namespace()

    found: Cluster = cluster.read(kubectl, given.system_namespace, namespace)
    if given.verb == "who":
        check_pool(found.ledger, given.pool)
        wanted = Filter(namespace=given.namespace, node=given.node, pool=given.pool, device=given.device)
        users = who(found, wanted)
        return Report(lambda paper: who_text(users, paper), "who", users)
    if given.verb == "why":
        wanted_pod = target_of(given.target, namespace())
        reasons = why(gather(kubectl, found, wanted_pod, given.system_namespace))
        return Report(lambda paper: why_text(reasons, paper), "why", reasons, DONE if reasons.fine else WAITS)
    if given.verb == "fit":
        return _fit_report(given, found, stack)
    rooms = free(found, given.pool)
    return Report(lambda paper: free_text(rooms, paper), "free", rooms)


def _fit_report(given: argparse.Namespace, found: Cluster | None, stack: stack_fit.StackFile | None) -> Report:
    """Of the cluster, of a stack file, or both."""
    wanted = Wanted(mib=given.mib, count=given.gpu_count, replicas=given.replicas)
    ledgers = [source.ledger for source in (stack, found) if source is not None]  # one of the two is given
    plan = fit(ledgers[0], found, wanted, given.pool, given.tenant)
    if stack:
        plan = stack.with_patch(plan)
    return Report(lambda paper: fit_text(plan, paper), "fit", plan, DONE if plan.fits else WAITS)


def text_of(arguments: Sequence[str], kubectl: Kubectl, paper: Paper) -> str:
    """What a verb prints for people. Raises AgentError."""
    return _report(parser().parse_args(arguments), kubectl).text(paper)


def _print(report: Report, given: argparse.Namespace, environ: Mapping[str, str]) -> None:
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


def run() -> int:
    """Of this process."""
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
