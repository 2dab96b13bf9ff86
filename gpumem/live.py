"""Makes the reports on the current state of a cluster or a stack file, and the report `changes`."""

import argparse
from collections.abc import Callable
from functools import partial

from agents.kube.kubectl import Kubectl, seconds
from agents.kube.pods import LIVE, PODS
from gpumem import cluster
from gpumem.changes import changes, changes_text
from gpumem.cluster import ClusterSnapshot
from gpumem.draw import who_text, why_text
from gpumem.draw_fit import fit_text
from gpumem.draw_pods import pods_text
from gpumem.evidence import gather, target_of
from gpumem.fit import fit
from gpumem.report import DONE, WAITS, Report
from gpumem.stack_fit import StackFile
from gpumem.status import CODES, status, status_text
from gpumem.who import Filter, UnknownNameError, check, who
from gpumem.why import why
from gpumem.without import without, without_text
from tenancy.fit.smallest_change import Wanted


def report(given: argparse.Namespace, kubectl: Kubectl, stack: StackFile | None = None) -> Report:
    """Returns the report that the arguments request. Raises AgentError."""

    def namespace() -> str:
        own: str = getattr(given, "namespace", None) or kubectl.namespace()
        return own

    if getattr(given, "namespace", None):
        cluster.check_namespace(kubectl, given.namespace)
    if given.verb == "changes":
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
    stack: StackFile | None,
) -> Report:
    if given.verb == "who":
        if given.sort_by and given.output != "text":
            raise UnknownNameError(f"--sort-by sorts the text; it has no meaning with -o {given.output}")
        uids = selected(kubectl, given.namespace or found.own, given.selector) if given.selector else None
        wanted = Filter(namespace=given.namespace, node=given.node, pool=given.pool, uids=uids)
        check(found, wanted)
        text = partial(pods_text, by=given.sort_by) if given.sort_by else who_text
        return Report("who", who(found, wanted), text)
    if given.verb == "why":
        wanted_pod = target_of(given.target, namespace())
        reasons = why(gather(kubectl, found, wanted_pod, given.system_namespace))
        return Report("why", reasons, why_text, DONE if reasons.fine else WAITS)
    if given.verb == "status":
        parts = status(kubectl, found, given.system_namespace)
        return Report("status", parts, status_text, CODES[parts.worst])
    if given.without:
        moved = without(found, given.without)
        return Report("without", moved, without_text, DONE if moved.fine else WAITS)
    return fit_report(given, found, stack)


def fit_report(given: argparse.Namespace, found: ClusterSnapshot | None, stack: StackFile | None) -> Report:
    """Returns the report of `kubectl gpumem fit` on a cluster, on a stack file, or on a cluster and a stack file.

    Raises UnknownNameError.
    """
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
