"""`python -m stacks`: what an operator asks of the configuration without the engine."""

import argparse
import io
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from components.host_memory import host_memory_pools
from stacks import kubeconfig, schema, settings, typed
from stacks.parts import Parts
from stacks.preview import run as preview
from stacks.preview.progress import Progress
from stacks.preview.remedies import remedies
from stacks.preview.report import report
from stacks.settings import StackSettings
from tenancy.chart import seating_chart
from tenancy.host_memory.chart import host_memory_chart

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = Path("examples") / "template" / "gpus.yaml"
_SCHEMA = "# yaml-language-server: $schema=docs/config.schema.json\n#\n"


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Runs one command on the project at `root`; 0, or 1: with the reasons on stderr, or for a report that contradicts
    the stack. A preview's is Pulumi's."""
    parser = argparse.ArgumentParser(prog="python -m stacks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (("chart", "print a stack's seating chart"), ("new", "start a stack with one GPU")):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--stack", required=True, type=_stack_name, help="NAME of Pulumi.NAME.yaml")
    command = commands.add_parser("preview", help="preview a stack under the policy pack")
    command.add_argument("--stack", required=True, type=_stack_name, help="NAME of Pulumi.NAME.yaml")
    command.add_argument("--full", action="store_true", help="let Pulumi list every resource")
    command.add_argument("arguments", nargs="*", metavar="-- ARGUMENT", help="for pulumi preview")
    command = commands.add_parser("schema", help="print the JSON schema of a stack file")
    command.add_argument("--parts", action="store_true", help="of a file that the key files names")
    command = commands.add_parser("cluster", help="print the cluster that kubectl's configuration leads to")
    command.add_argument("--optional", action="store_true", help="having none that answers is no error")
    given = parser.parse_args(arguments)
    code = 0
    try:
        match given.command:
            case "preview":
                text, code = _preview(root, given.stack, given.arguments, full=given.full)
            case "chart":
                text = _chart(_declared(root, given.stack)[0])
            case "new":
                text = _new(root, given.stack)
            case "schema":
                text = schema.render(parts=given.parts)
            case _:
                text = _cluster(optional=given.optional)
    except (settings.ConfigError, kubeconfig.KubeconfigError, _CommandError) as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.write(text)
    return code


class _CommandError(Exception):
    """The command cannot be done; the message is a sentence."""


def _stack_name(text: str) -> str:
    if wrong := typed.stack_name(text):
        raise argparse.ArgumentTypeError(f"{text!r}: {wrong}")
    return text


def _stack_file(root: Path, stack: str) -> Path:
    return root / f"Pulumi.{stack}.yaml"


def _declared(root: Path, stack: str) -> tuple[StackSettings, Parts]:
    path = _stack_file(root, stack)
    if not path.exists():
        raise _CommandError(f"{path} is not there; begin with make new-stack STACK={stack}")
    return settings.declared(path)


def _chart(declared: StackSettings) -> str:
    """Overruns are marked, not refused: the gate is the policy pack."""
    width = min(max(shutil.get_terminal_size().columns, 80), 120) if sys.stdout.isatty() else 100
    host_memory = host_memory_chart(host_memory_pools(declared.memory_pools))
    return seating_chart(declared.ledger(), width=width, colour=_colour()) + host_memory


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _preview(root: Path, stack: str, arguments: Sequence[str], *, full: bool) -> tuple[str, int]:
    """The report and the exit code. What the configuration alone refuses is refused before Pulumi starts."""
    if wrong := [*typed.flags(arguments, "preview"), *typed.options(os.environ, "preview")]:
        raise _CommandError("\n".join(wrong))
    declared, parts = _declared(root, stack)
    chart = _chart(declared)
    print(_cluster(optional=True), flush=True)
    pulumi = root / ".toolchain" / "bin" / "pulumi"
    if not pulumi.exists():
        raise _CommandError(f"{pulumi} is not there; run make toolchain")
    if full or preview.wants_pulumis_display(arguments):
        run = preview.displayed(pulumi, stack, arguments, root=root)
        print()
    else:
        progress = Progress(stack)
        run = preview.quietly(pulumi, stack, arguments, root=root, watch=progress)
        progress.clear()
    lowered = remedies(declared.ledger(), lambda seat: parts.shown(("residents", seat)))
    return report(run, chart, colour=_colour(), remedies=lowered), run.exit_code


def _new(root: Path, stack: str) -> str:
    path = _stack_file(root, stack)
    try:
        example = (root / EXAMPLE).read_text(encoding="utf-8")
        with path.open("x", encoding="utf-8") as file:
            file.write(f"{_SCHEMA}{example}")
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
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nor does Ctrl-C need a traceback
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # nor is a terminal without block characters
    sys.exit(main(sys.argv[1:]))
