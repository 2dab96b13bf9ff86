"""Implements `python -m stacks`.

The commands preview, apply and remove a stack under the policy pack, and start a new stack.
"""

import argparse
import io
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stacks import commands, schema
from stacks.cluster import Cluster
from stacks.engine import Engine, EngineError
from stacks.kubeconfig import KubeconfigError
from stacks.settings import ConfigError

_ABOUT = "Commands for one stack: preview it with the policy pack, apply it, remove it, or start a new stack."
_EXIT_CODES = """exit codes:
  0    done
  1    refused or failed; the reasons are on stderr, or at the end of the report
  2    the command line is wrong
  130  interrupted
  any other code is Pulumi's own
make ends with 2 instead of any of these except 0"""


_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "--stack": {"required": True, "metavar": "NAME", "help": "NAME of Pulumi.NAME.yaml"},
    "--out": {
        "required": True,
        "metavar": "DIR",
        "help": "folder for the manifests: empty, or written by this command",
    },
    "--cluster": {
        "metavar": "UID",
        "help": "uid of kube-system in the only cluster that may accept the manifests; default: any cluster",
    },
    "--full": {"action": "store_true", "help": "show Pulumi's own output with every resource"},
    "--before": {
        "type": Path,
        "metavar": "FILE",
        "help": "draw the seats of this stack file as the seats before the change; default: the stack's state",
    },
    "--yes": {
        "action": "store_true",
        "help": "do not ask for consent, for example in a pipeline with its own approval",
    },
    "flags": {"nargs": "*", "metavar": "-- FLAG", "help": "flags for Pulumi's command with the same name"},
}


@dataclass(frozen=True)
class _Command:
    """A subcommand: its summary, the arguments of its examples, and its options by name."""

    run: Callable[..., int]
    summary: str
    examples: Sequence[str]
    options: Sequence[str]


def _preflight(engine: Engine, cluster: Cluster, width: int) -> str:
    """Returns the report of `make preflight`, which belongs to a package that stands on this one."""
    from gpumem import checkout, paper, survey  # noqa: PLC0415 (only a rollout with a change needs the report)
    from gpumem.preflight import report  # noqa: PLC0415

    declared = checkout.declared_parts(engine.stack, engine.root)
    found = report.preflight(survey.read(cluster.kubectl), declared, cluster.kubectl)
    return report.preflight_text(found, paper.Paper(width))


def _schema() -> int:
    for path, text in schema.generated_files(Path.cwd()).items():
        path.write_text(text, encoding="utf-8")
    return 0


COMMANDS: Mapping[str, _Command] = {
    "preview": _Command(
        commands.preview,
        "show the changes, the seating chart and the policy pack's verdict, without a cluster",
        ("--stack lab", "--stack lab --full", "--stack lab --before base/Pulumi.lab.yaml", "--stack lab -- --diff"),
        ("--stack", "--full", "--before", "flags"),
    ),
    "up": _Command(
        partial(commands.up, preflight=_preflight),
        "preview a stack, ask for consent, and apply the stack to the current kubeconfig's cluster",
        ("--stack lab", "--stack lab --yes -- --refresh"),
        ("--stack", "--full", "--yes", "flags"),
    ),
    "destroy": _Command(
        commands.destroy,
        "show the objects to delete, ask for consent, and remove a stack from the current kubeconfig's cluster",
        ("--stack lab", "--stack lab --yes"),
        ("--stack", "--yes", "flags"),
    ),
    "refresh": _Command(
        commands.refresh,
        "update Pulumi's state from the cluster, and change nothing in the cluster",
        ("--stack lab", "--stack lab --yes"),
        ("--stack", "--yes", "flags"),
    ),
    "render": _Command(
        commands.render,
        "write a stack as plain manifests for Flux, Argo CD or kubectl, if the policy pack accepts the stack",
        ("--stack lab --out manifests", "--stack lab --out manifests --cluster 8a5f3c1e-2c5e-4c43-9b1d-0e6f7a1b2c3d"),
        ("--stack", "--out", "--cluster"),
    ),
    "new": _Command(
        commands.new, "write Pulumi.NAME.yaml from an example with one GPU", ("--stack lab",), ("--stack",)
    ),
    "chart": _Command(commands.chart, "print a stack's seating chart", ("--stack lab",), ("--stack",)),
    "ledger": _Command(
        commands.ledger,
        "print the configuration with which the policy pack judges other programs; the stack need not be up",
        ("--stack lab > ledger.json",),
        ("--stack",),
    ),
    "rules": _Command(
        commands.rules,
        "print the alerts and recording rules as a rule file for Prometheus, for a cluster without the Prometheus "
        "Operator",
        ("--stack lab > gpu-tenancy.rules.yaml",),
        ("--stack",),
    ),
    "schema": _Command(
        _schema,
        "write the JSON schemas and docs/reference/settings.md from the settings",
        ("",),
        (),
    ),
}


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line. Options cannot be abbreviated."""
    texts: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    top = argparse.ArgumentParser(prog="python -m stacks", description=_ABOUT, epilog=_EXIT_CODES, **texts)
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        examples = "\n".join(f"  python -m stacks {name} {example}" for example in command.examples)
        epilog = f"examples:\n{examples}\n\n{_EXIT_CODES}"
        one = subparsers.add_parser(name, help=command.summary, description=command.summary, epilog=epilog, **texts)
        for option in command.options:
            one.add_argument(option, **_OPTIONS[option])
    return top


def main(arguments: Sequence[str], root: Path | None = None) -> int:
    """Runs one command on the project in `root`, by default the project in the current directory.

    Returns the exit code of the command.
    """
    options = vars(parser().parse_args(arguments))
    command = COMMANDS[options.pop("command")]
    try:
        if "stack" in options:
            options["engine"] = Engine.of(options.pop("stack"), root or Path.cwd())
        return command.run(**options)
    except (ConfigError, EngineError, KubeconfigError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    # a program such as `head` can stop reading the output early
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a traceback
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # some terminals lack block characters
    sys.exit(main(sys.argv[1:]))
