"""Compares a stack with the cluster, for `make preflight` and `make up`: `python -m gpumem.preflight --stack NAME`.

Reads the cluster once, tries the stack's pods in a dry run, and writes nothing to the cluster.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.kube.kubectl import Kubectl
from agents.runtime.errors import AgentError
from gpumem import checkout, cli, survey
from gpumem.arguments import add_connection
from gpumem.preflight.report import preflight, preflight_text
from gpumem.report import DONE, Report

# The rollout has an obstacle, or the cluster or the stack cannot be read.
IN_THE_WAY, UNREAD = 1, 2


def main(arguments: Sequence[str], environ: Mapping[str, str], reach: cli.Reach = Kubectl) -> int:
    """Prints the report, and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m gpumem.preflight", description="Compare a stack with the cluster before a rollout."
    )
    parser.add_argument("--stack", required=True, help="NAME of Pulumi.NAME.yaml in this folder")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="default: text")
    add_connection(parser)
    given = parser.parse_args(arguments)
    try:
        declared = checkout.declared_parts(given.stack, Path.cwd())
        with reach(cli.kubectl_flags(given)) as kubectl:
            found = preflight(survey.read(kubectl), declared, kubectl)
    except AgentError as error:
        cli.complain(error)
        return UNREAD
    return cli.show(Report("preflight", found, preflight_text, DONE if found.clear else IN_THE_WAY), given, environ)


if __name__ == "__main__":
    sys.exit(cli.run(main))
