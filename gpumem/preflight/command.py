"""The verb preflight: reads the cluster once, and judges. It writes nothing."""

from collections.abc import Sequence
from pathlib import Path

from gpumem import checkout, cluster, survey
from gpumem.kubectl import Kubectl
from gpumem.preflight.declared import Declared
from gpumem.preflight.report import Preflight, preflight, preflight_text
from gpumem.report import DONE, IN_THE_WAY, Report


def check(flags: Sequence[str], stack: str, root: Path) -> Preflight:
    """The report on a stack of a checkout in the cluster that kubectl's flags choose. Raises AgentError."""
    declared = checkout.rollout(stack, root)
    with Kubectl(flags) as kubectl:
        return preflight(survey.read(kubectl), declared)


def report(kubectl: Kubectl, stack: str | None, root: Path, system: str) -> Report:
    """The report on a stack file, or on the cluster's ledger without one. Raises AgentError."""
    of_stack = checkout.rollout(stack, root) if stack else None
    read = survey.read(kubectl)
    found = preflight(read, of_stack or Declared(ledger=cluster.ledger(kubectl, system)))
    return Report("preflight", found, preflight_text, DONE if found.clear else IN_THE_WAY)
