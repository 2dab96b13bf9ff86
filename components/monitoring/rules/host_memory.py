"""Alerts on nodes whose host memory is oversubscribed: the preview's proof rests on who is there, and who is not.

A node of a pool is known by the workloads that run on it: by itself kube-state-metrics exports no labels of nodes.
"""

from collections.abc import Iterable, Iterator

from components.base.manifest import Manifest
from components.monitoring.args import AlertsArgs
from components.monitoring.rules.alert import alert
from tenancy.host_memory.pool import Disposable, Workload

_RUNNING = 'on (namespace, pod) (max by (namespace, pod) (kube_pod_status_phase{phase="Running"}) == 1)'
# On every node by their nature, and of the node's own: what the machine's memory less what is allocatable is for.
_OF_THE_NODE = 'max by (namespace, pod) (kube_pod_info{created_by_kind=~"DaemonSet|Node"})'


def rules(args: AlertsArgs) -> Iterator[Manifest]:
    """None where no host memory is oversubscribed."""
    workloads = [workload for pool in args.host_memory for workload in pool.workloads]
    victims = [disposable for pool in args.host_memory for disposable in pool.disposable]
    if not workloads:
        return
    if victims:
        yield _without_victim(workloads, victims)
    yield _guest(workloads, sorted({member.tenant for pool in args.host_memory for member in pool.members}))


def _without_victim(workloads: Iterable[Workload], victims: Iterable[Disposable]) -> Manifest:
    return alert(
        "MemoryPoolWithoutVictim",
        f"{_nodes_of(workloads)} unless on (node) {_nodes_of(victims)}",
        hold="2m",
        severity="critical",
        summary="No disposable pod runs on {{ $labels.node }}, whose memory is oversubscribed",
        description=(
            "{{ $value }} pods there may take more memory than they reserve, and nobody is there to be killed for it: "
            "when it runs out the kernel kills one of them. Have a victim run there, or their peaks elsewhere."
        ),
    )


def _guest(workloads: Iterable[Workload], tenants: Iterable[str]) -> Manifest:
    """A pod without a request is killed before anybody else, and so is none."""
    on = "on (namespace, pod, container)"
    asked, limited = (
        f'max by (namespace, pod, container, node) (kube_pod_container_resource_{part}{{resource="memory"}})'
        for part in ("requests", "limits")
    )
    bursts = f"({asked} unless {on} ({limited} <= {on} {asked}))"
    strangers = f'max by (namespace, pod) (kube_pod_info{{namespace!~"{"|".join(tenants)}"}})'
    return alert(
        "MemoryPoolGuest",
        f"sum by (node, namespace, pod) ({bursts}) and on (node) {_nodes_of(workloads)} and on (namespace, pod) "
        f"{strangers} and {_RUNNING} unless on (namespace, pod) {_OF_THE_NODE}",
        hold="10m",
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.pod }} may take memory on {{ $labels.node }} that nobody counted",
        description=(
            "It reserves {{ $value | humanize1024 }}B, may hold more, and is in no memory pool: what was proven of the "
            "node leaves it out. Declare it under memory_pools, make its request and limit equal, or move it."
        ),
    )


def _nodes_of(members: Iterable[Workload | Disposable]) -> str:
    """PromQL: by node, how many of these members' pods run there."""
    pods = sorted({(member.tenant, member.priority) for member in members})
    of = " or ".join(
        f'max by (node, namespace, pod) (kube_pod_info{{namespace="{tenant}", priority_class="{priority}", node!=""}})'
        for tenant, priority in pods
    )
    return f"count by (node) (({of}) and {_RUNNING})"
