"""Makes the reports `who`, `free`, `why` and `fit` on the current state of a cluster or a stack file."""

import argparse

from gpumem import cluster
from gpumem.cluster import ClusterSnapshot
from gpumem.draw import free_text, who_text, why_text
from gpumem.draw_fit import fit_text
from gpumem.evidence import gather, target_of
from gpumem.fit import fit
from gpumem.free import free
from gpumem.kubectl import Kubectl
from gpumem.report import DONE, WAITS, Report
from gpumem.stack_fit import StackFile
from gpumem.who import Filter, check_pool, who
from gpumem.why import why
from tenancy.fit.smallest_change import Wanted


def report(given: argparse.Namespace, kubectl: Kubectl, stack: StackFile | None = None) -> Report:
    """Returns the report that the arguments request. Raises AgentError."""

    def namespace() -> str:
        own: str = given.namespace or kubectl.namespace()
        return own

    found = cluster.read(kubectl, given.system_namespace, namespace)
    if given.verb == "who":
        check_pool(found.ledger, given.pool)
        wanted = Filter(namespace=given.namespace, node=given.node, pool=given.pool, device=given.device)
        return Report("who", who(found, wanted), who_text)
    if given.verb == "why":
        wanted_pod = target_of(given.target, namespace())
        reasons = why(gather(kubectl, found, wanted_pod, given.system_namespace))
        return Report("why", reasons, why_text, DONE if reasons.fine else WAITS)
    if given.verb == "fit":
        return fit_report(given, found, stack)
    return Report("free", free(found, given.pool), free_text)


def fit_report(given: argparse.Namespace, found: ClusterSnapshot | None, stack: StackFile | None) -> Report:
    """Returns the report of `kubectl gpumem fit` on a cluster, on a stack file, or on a cluster and a stack file.

    Raises PoolError.
    """
    wanted = Wanted(mib=given.mib, count=given.gpu_count, replicas=given.replicas)
    ledgers = [source.ledger for source in (stack, found) if source is not None]  # `stack` or `found` is given, or both
    fitting = fit(ledgers[0], found, wanted, given.pool, given.tenant)
    if stack:
        fitting = stack.with_patch(fitting)
    return Report("fit", fitting, fit_text, DONE if fitting.fits else WAITS)
