"""Runs `kubectl gpumem preflight`: reads the cluster once, and compares a stack with the cluster.

`preflight` writes nothing to the cluster."""

from collections.abc import Sequence
from pathlib import Path

from agents.kube.kubectl import Kubectl
from gpumem import checkout, cluster, survey
from gpumem.preflight.declared import Declared
from gpumem.preflight.report import Preflight, preflight, preflight_text
from gpumem.report import DONE, IN_THE_WAY, Report


def check(flags: Sequence[str], stack: str, root: Path) -> Preflight:
    """Returns the report on a stack of the checkout, for the cluster that kubectl's flags select. Raises AgentError."""
    declared = checkout.declared_parts(stack, root)
    with Kubectl(flags) as kubectl:
        return preflight(survey.read(kubectl), declared)


def report(kubectl: Kubectl, stack: str | None, root: Path, system: str) -> Report:
    """Returns the report on a stack file.

    Without a stack file, returns the report on the cluster's ledger. Raises AgentError.
    """
    of_stack = checkout.declared_parts(stack, root) if stack else None
    read = survey.read(kubectl)
    found = preflight(read, of_stack or Declared(ledger=cluster.ledger(kubectl, system)))
    return Report("preflight", found, preflight_text, DONE if found.clear else IN_THE_WAY)
