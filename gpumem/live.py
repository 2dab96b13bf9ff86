"""Makes the reports on the current state of a cluster or a stack file, and the report `changes`.

A report imports its modules when it is asked for, because their import takes longer than the report.
"""

# ruff: noqa: PLC0415 (see above)

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from agents.kube.kubectl import Kubectl, seconds
from agents.kube.pods import LIVE, PODS
from gpumem import cluster
from gpumem.cluster import ClusterSnapshot
from gpumem.report import DONE, WAITS, Report

if TYPE_CHECKING:
    from gpumem.stack_fit import StackFile


def report(given: argparse.Namespace, kubectl: Kubectl, stack: "StackFile | None" = None) -> Report:
    """Returns the report that the arguments request. Raises AgentError."""

    def namespace() -> str:
        own: str = getattr(given, "namespace", None) or kubectl.namespace()
        return own

    if getattr(given, "namespace", None):
        cluster.check_namespace(kubectl, given.namespace)
    if given.verb == "changes":
        from gpumem.changes import changes, changes_text

        made = changes(
            kubectl,
            given.system_namespace,
            seconds(given.since),
            namespace=given.namespace,
            pool=given.pool,
            own=namespace,
        )
        return Report("changes", made, changes_text)
    found = cluster.read(kubectl, given.system_namespace, namespace)
    return _of_snapshot(given, kubectl, found, namespace, stack)


def _of_snapshot(
    given: argparse.Namespace,
    kubectl: Kubectl,
    found: ClusterSnapshot,
    namespace: Callable[[], str],
    stack: "StackFile | None",
) -> Report:
    if given.verb == "who":
        return _who(given, kubectl, found)
    if given.verb == "why":
        from gpumem.draw_why import why_text
        from gpumem.evidence import gather, target_of
        from gpumem.why import why

        wanted_pod = target_of(given.target, namespace())
        reasons = why(gather(kubectl, found, wanted_pod, given.system_namespace))
        return Report("why", reasons, why_text, DONE if reasons.fine else WAITS)
    if given.verb == "status":
        from gpumem.status import CODES, status, status_text

        parts = status(kubectl, found, given.system_namespace)
        return Report("status", parts, status_text, CODES[parts.worst])
    if given.without:
        from gpumem.without import without, without_text

        moved = without(found, given.without)
        return Report("without", moved, without_text, DONE if moved.fine else WAITS)
    return fit_report(given, found, stack)


def _who(given: argparse.Namespace, kubectl: Kubectl, found: ClusterSnapshot) -> Report:
    from gpumem.draw import who_text
    from gpumem.who import Filter, UnknownNameError, check, who

    if given.sort_by and given.output != "text":
        raise UnknownNameError(f"--sort-by sorts the text; it has no meaning with -o {given.output}")
    uids = selected(kubectl, given.namespace or found.own, given.selector) if given.selector else None
    wanted = Filter(namespace=given.namespace, node=given.node, pool=given.pool, uids=uids)
    check(found, wanted)
    if not given.sort_by:
        return Report("who", who(found, wanted), who_text)
    from gpumem.draw_pods import pods_text

    return Report("who", who(found, wanted), partial(pods_text, by=given.sort_by))


def fit_report(given: argparse.Namespace, found: ClusterSnapshot | None, stack: "StackFile | None") -> Report:
    """Returns the report of `kubectl gpumem fit` on a cluster, on a stack file, or on a cluster and a stack file.

    Raises UnknownNameError.
    """
    from gpumem.draw_fit import fit_text
    from gpumem.fit import fit
    from tenancy.fit.smallest_change import Wanted

    wanted = Wanted(mib=given.mib, count=given.gpu_count, replicas=given.replicas)
    # The caller gives at least one of `stack` and `found`.
    ledgers = [source.ledger for source in (stack, found) if source is not None]
    fitting = fit(ledgers[0], found, wanted, given.pool, given.tenant)
    if stack:
        fitting = stack.with_patch(fitting)
    return Report("fit", fitting, fit_text, DONE if fitting.fits else WAITS)


def selected(kubectl: Kubectl, namespace: str | None, selector: str) -> frozenset[str]:
    """Returns the UIDs of the pods with these labels. The API server judges the label selector. Raises ApiError."""
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else PODS
    return frozenset(item["metadata"]["uid"] for item in kubectl.items(path, **LIVE, labelSelector=selector))
