"""`python -m stacks`: what an operator asks of the configuration without the engine."""

import argparse
import io
import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from stacks import kubeconfig, schema, settings
from tenancy.chart import seating_chart

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = Path("examples") / "one-gpu.yaml"


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Runs one command on the project at `root`; 0, or 1 with the reasons on stderr."""
    parser = argparse.ArgumentParser(prog="python -m stacks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (("chart", "print a stack's seating chart"), ("new", "start a stack with one GPU")):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--stack", required=True, type=_stack_name, help="NAME of Pulumi.NAME.yaml")
    commands.add_parser("schema", help="print the JSON schema of a stack file")
    command = commands.add_parser("cluster", help="print the cluster that kubectl's configuration leads to")
    command.add_argument("--optional", action="store_true", help="having none that answers is no error")
    given = parser.parse_args(arguments)
    try:
        match given.command:
            case "chart":
                text = _chart(root, given.stack)
            case "new":
                text = _new(root, given.stack)
            case "schema":
                text = schema.render()
            case _:
                text = _cluster(optional=given.optional)
    except (settings.ConfigError, kubeconfig.KubeconfigError, _CommandError) as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.write(text)
    return 0


class _CommandError(Exception):
    """The command cannot be done; the message is a sentence."""


def _stack_name(text: str) -> str:
    if not re.fullmatch(r"[-_.A-Za-z0-9]{1,100}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: a stack's name has letters, digits, '-', '_' and '.'")
    return text


def _stack_file(root: Path, stack: str) -> Path:
    return root / f"Pulumi.{stack}.yaml"


def _chart(root: Path, stack: str) -> str:
    """Overruns are marked, not refused: the gate is the policy pack."""
    path = _stack_file(root, stack)
    if not path.exists():
        raise _CommandError(f"{path} is not there; begin with make new-stack STACK={stack}")
    terminal = sys.stdout.isatty()
    width = min(max(shutil.get_terminal_size().columns, 80), 120) if terminal else 100
    colour = terminal and not os.environ.get("NO_COLOR")
    return seating_chart(settings.load_file(path).ledger(), width=width, colour=colour)


def _new(root: Path, stack: str) -> str:
    path = _stack_file(root, stack)
    try:
        example = (root / EXAMPLE).read_text(encoding="utf-8")
        with path.open("x", encoding="utf-8") as file:
            file.write(example)
    except FileExistsError:
        raise _CommandError(f"{path.name} is there already; remove it or choose another name") from None
    except OSError as error:
        raise _CommandError(f"{path.name} cannot be written from {EXAMPLE}: {error.strerror}") from None
    return f"{path.name} is written: put your GPU's numbers into it, then run\n  make preview STACK={stack}\n"


def _cluster(*, optional: bool) -> str:
    try:
        cluster = kubeconfig.current(kubeconfig.files(os.environ))
        kubeconfig.reach(cluster, os.environ)
    except kubeconfig.KubeconfigError as error:
        if optional:
            return f"{error}; the program is judged without one\n"
        raise
    return f"{cluster}\n"


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # nor is a terminal without block characters
    sys.exit(main(sys.argv[1:]))
