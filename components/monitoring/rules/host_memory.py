"""Alerts on nodes of memory pools. An alert fires if a node runs a pod that the policy pack's proof did not count, if a
disposable pod that the proof needs is missing, or if a node is smaller than the proof assumes.

The rules find a memory pool's nodes by the pool's running workloads. By default, kube-state-metrics exports no node
labels.
"""

from collections.abc import Iterable, Iterator

from components.monitoring.alert import Alert, Example
from components.monitoring.args import AlertsArgs
from tenancy.host_memory.pool import Disposable, HostMemoryPool, Workload
from tenancy.units import MIB

_RUNNING = 'on (namespace, pod) (max by (namespace, pod) (kube_pod_status_phase{phase="Running"}) == 1)'
_ALLOCATABLE = "kube_node_status_allocatable"
_ALLOCATABLE_IN_EXAMPLE = f'{_ALLOCATABLE}{{node="n", resource="memory"}}'
# Pods of DaemonSets and static pods. Pods of DaemonSets and static pods run on every node. The host memory of
# DaemonSets and static pods is not a part of the node's allocatable memory.
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
            summary="{{ $labels.node }} has oversubscribed host memory and no disposable pod",
            description=(
                "{{ $value }} pods on this node may use more host memory than they request. If it runs out, the "
                "kernel kills one of these pods, because the node has no disposable pod. Run a disposable pod there, "
                "or move these pods."
            ),
            fires=_runs(workloads[0]),
            silent=with_disposable,
        )
    yield Alert(
        "MemoryPoolNodeSmaller",
        " or ".join(map(_smaller, args.host_memory)),
        hold="10m",
        severity="warning",
        summary="{{ $labels.node }} offers {{ $value | humanize1024 }}B of host memory, less than its pool declares",
        description=(
            "The preview has proved the memory pool with more allocatable host memory than this node has, so the pods' "
            "requests and peaks may not fit. The guard computes with the node's own memory. Lower the memory pool's "
            "allocatable_mib, or make the node larger."
        ),
        fires={**with_disposable, _ALLOCATABLE_IN_EXAMPLE: f"{2**20}x30"},
        silent={**with_disposable, _ALLOCATABLE_IN_EXAMPLE: f"{2**60}x30"},
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
            "{{ $labels.namespace }}/{{ $labels.pod }} on {{ $labels.node }} may use more host memory than it "
            "requests, and is in no memory pool"
        ),
        description=(
            "The pod requests {{ $value | humanize1024 }}B of host memory and may use more. The preview's proof of "
            "the node does not count this pod. Declare it under memory_pools, make its request and limit equal, or "
            "move it to another node."
        ),
        fires=guest,
        silent={**guest, f'{asked}_limits{{{stranger}, resource="memory"}}': "1024x30"},
    )


def _smaller(pool: HostMemoryPool) -> str:
    offered = f'min by (node) ({_ALLOCATABLE}{{resource="memory"}})'
    return f"{offered} < {pool.allocatable_mib * MIB} and on (node) {_nodes_of(pool.workloads)}"


def _bursting() -> str:
    """Returns PromQL: the host memory requests of pods with a limit above their request or without a limit. Pods
    without a request are left out, because the kernel kills them first.
    """
    on = "on (namespace, pod, container)"
    asked, limited = (
        f'max by (namespace, pod, container, node) (kube_pod_container_resource_{part}{{resource="memory"}})'
        for part in ("requests", "limits")
    )
    return f"sum by (node, namespace, pod) (({asked} unless {on} ({limited} <= {on} {asked})))"


def _runs(member: Workload | Disposable) -> Example:
    pod = f'namespace="{member.tenant}", pod="{member.name}"'
    return {
        f'kube_pod_info{{{pod}, node="n", priority_class="{member.priority}"}}': "1x30",
        f'kube_pod_status_phase{{{pod}, phase="Running"}}': "1x30",
    }


def _nodes_of(members: Iterable[Workload | Disposable]) -> str:
    pods = sorted({(member.tenant, member.priority) for member in members})
    of = " or ".join(
        f'max by (node, namespace, pod) (kube_pod_info{{namespace="{tenant}", priority_class="{priority}", node!=""}})'
        for tenant, priority in pods
    )
    return f"count by (node) (({of}) and {_RUNNING})"
