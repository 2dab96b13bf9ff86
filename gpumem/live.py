"""The reports on a cluster as it is now, and on a stack file: who, free, why and fit."""

import argparse

from gpumem import cluster
from gpumem.cluster import ClusterSnapshot
from gpumem.draw import free_text, who_text, why_text
from gpumem.draw_fit import fit_text
from gpumem.evidence import gather, target_of
from gpumem.fit import fit
from gpumem.free import free
from gpumem.kubectl import Session
from gpumem.report import DONE, WAITS, Report
from gpumem.stack_fit import StackFile
from gpumem.who import Filter, check_pool, who
from gpumem.why import why
from tenancy.fit.plan import Wanted


def report(given: argparse.Namespace, kubectl: Session, stack: StackFile | None = None) -> Report:
    """Of what was typed. Raises AgentError."""

    def namespace() -> str:
        return given.namespace or kubectl.namespace()

    found = cluster.read(kubectl, given.system_namespace, namespace)
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
        return fit_report(given, found, stack)
    rooms = free(found, given.pool)
    return Report(lambda paper: free_text(rooms, paper), "free", rooms)


def fit_report(given: argparse.Namespace, found: ClusterSnapshot | None, stack: StackFile | None) -> Report:
    """Of the cluster, of a stack file, or both. Raises PoolError."""
    wanted = Wanted(mib=given.mib, count=given.gpu_count, replicas=given.replicas)
    ledgers = [source.ledger for source in (stack, found) if source is not None]  # one of the two is given
    plan = fit(ledgers[0], found, wanted, given.pool, given.tenant)
    if stack:
        plan = stack.with_patch(plan)
    return Report(lambda paper: fit_text(plan, paper), "fit", plan, DONE if plan.fits else WAITS)
