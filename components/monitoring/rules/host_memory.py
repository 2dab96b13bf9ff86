"""Alerts on memory pools' nodes with pods that the preview's proof did not count, or without pods that it needs.

The workloads show which nodes are a pool's, because kube-state-metrics exports no labels of nodes by default.
"""

from collections.abc import Iterable, Iterator

from components.monitoring.alert import Alert, Example
from components.monitoring.args import AlertsArgs
from tenancy.host_memory.pool import Disposable, Workload

_RUNNING = 'on (namespace, pod) (max by (namespace, pod) (kube_pod_status_phase{phase="Running"}) == 1)'
# These pods run on every node, and use the memory outside allocatable.
_OF_THE_NODE = 'max by (namespace, pod) (kube_pod_info{created_by_kind=~"DaemonSet|Node"})'


def rules(args: AlertsArgs) -> Iterator[Alert]:
    workloads = [workload for pool in args.host_memory for workload in pool.workloads]
    disposable = [member for pool in args.host_memory for member in pool.disposable]
    if not workloads:
        return
    with_disposable = {**_runs(workloads[0]), **(_runs(disposable[0]) if disposable else {})}
    if disposable:
        yield Alert(
            "MemoryPoolWithoutVictim",
            f"{_nodes_of(workloads)} unless on (node) {_nodes_of(disposable)}",
            hold="2m",
            severity="critical",
            summary="{{ $labels.node }} has oversubscribed memory and no disposable pod",
            description=(
                "{{ $value }} pods there may take more memory than they reserve. If memory runs out, the kernel kills "
                "one of them, because the node has no disposable pod. Run one there, or move the pods with peaks."
            ),
            fires=_runs(workloads[0]),
            silent=with_disposable,
        )
    tenants = sorted({member.tenant for pool in args.host_memory for member in pool.members})
    stranger, asked = 'namespace="stranger", pod="p", node="n"', "kube_pod_container_resource"
    guest = {
        **with_disposable,
        f"kube_pod_info{{{stranger}}}": "1x30",
        'kube_pod_status_phase{namespace="stranger", pod="p", phase="Running"}': "1x30",
        f'{asked}_requests{{{stranger}, resource="memory"}}': "1024x30",
    }
    yield Alert(
        "MemoryPoolGuest",
        f"{_bursting()} and on (node) {_nodes_of(workloads)} and on (namespace, pod) "
        f'max by (namespace, pod) (kube_pod_info{{namespace!~"{"|".join(tenants)}"}}) and {_RUNNING} '
        f"unless on (namespace, pod) {_OF_THE_NODE}",
        hold="10m",
        severity="warning",
        summary=(
            "{{ $labels.namespace }}/{{ $labels.pod }} may take memory on {{ $labels.node }} outside the proof of its "
            "pool"
        ),
        description=(
            "It reserves {{ $value | humanize1024 }}B, may hold more, and is in no memory pool. The proof of the node "
            "leaves it out. Declare it under memory_pools, make its request and limit equal, or move it."
        ),
        fires=guest,
        silent={**guest, f'{asked}_limits{{{stranger}, resource="memory"}}': "1024x30"},
    )


def _bursting() -> str:
    """PromQL: the requests of pods that may hold more. Pods without a request are killed first and do not count."""
    on = "on (namespace, pod, container)"
    asked, limited = (
        f'max by (namespace, pod, container, node) (kube_pod_container_resource_{part}{{resource="memory"}})'
        for part in ("requests", "limits")
    )
    return f"sum by (node, namespace, pod) (({asked} unless {on} ({limited} <= {on} {asked})))"


def _runs(member: Workload | Disposable) -> Example:
    """Returns an example's series: a pod of the member runs on node n."""
    pod = f'namespace="{member.tenant}", pod="{member.name}"'
    return {
        f'kube_pod_info{{{pod}, node="n", priority_class="{member.priority}"}}': "1x30",
        f'kube_pod_status_phase{{{pod}, phase="Running"}}': "1x30",
    }


def _nodes_of(members: Iterable[Workload | Disposable]) -> str:
    """Returns PromQL: the number of these members' running pods, by node."""
    pods = sorted({(member.tenant, member.priority) for member in members})
    of = " or ".join(
        f'max by (node, namespace, pod) (kube_pod_info{{namespace="{tenant}", priority_class="{priority}", node!=""}})'
        for tenant, priority in pods
    )
    return f"count by (node) (({of}) and {_RUNNING})"
