"""Alerts on advertised capacity, on pods that wait for capacity, and on full pools."""

from collections import Counter
from collections.abc import Iterator

from components.monitoring.alert import Alert, allocatable, allocatable_series, sanitised
from components.monitoring.args import AlertsArgs
from tenancy import names
from tenancy.ledger import Ledger

# kube-state-metrics exports kube_pod_status_unschedulable for a pod as long as the pod has no node. A pod with a
# scheduling gate has no series kube_pod_status_unschedulable.
_UNSCHEDULABLE = "kube_pod_status_unschedulable"
_OF_CHAT = f'{_UNSCHEDULABLE}{{namespace="chat", pod="chat-0"}}'


def rules(args: AlertsArgs) -> Iterator[Alert]:
    if args.ledger.shared_pools:
        yield _drift(args.ledger)
    yield _pending(args.ledger.names.gpumem)
    yield _full()


def _drift(ledger: Ledger) -> Alert:
    """Fires for each single node with a wrong capacity. In a sum over nodes, two errors could cancel each other. The
    alert compares the number of nodes only if every node's capacity is right.
    """
    shown, nodes = allocatable(ledger.names.gpumem), Counter[int]()
    for pool in ledger.shared_pools:
        nodes[pool.node_mib] += pool.nodes
    by = " or ResourceSlices" if ledger.reads_slices else ""
    as_declared = " or ".join(f"{shown} == {mib}" for mib in sorted(nodes))
    odd = f"({shown} unless ({as_declared}))"
    few = " or ".join(f"(count({shown} == {mib}) or vector(0)) != {number}" for mib, number in sorted(nodes.items()))
    wanted = " and ".join(f"{number} nodes with {mib} MiB" for mib, number in sorted(nodes.items()))
    return Alert(
        "GpuCapacityDrift",
        f"{odd} or (({few}) unless on () {odd})",
        hold="3m",
        severity="critical",
        summary=(
            "{{ if $labels.node }}{{ $labels.node }} advertises {{ $value }} MiB of GPU memory, but no pool declares "
            "this size{{ else }}{{ $value }} nodes advertise the memory of a pool, but the pools declare another "
            "number{{ end }}"
        ),
        description=(
            f"{names.RECONCILE} keeps {wanted} of {ledger.names.gpumem}. Possible causes: a node is missing, there is "
            f"an additional node, a node's labels{by} changed, the API server refuses the write, or the bound pods of "
            f"a node hold more than the ledger gives. Read the log of {names.RECONCILE} and the node's Events."
        ),
        fires={allocatable_series(ledger.names.gpumem): "1x30"},
        silent={allocatable_series(ledger.names.gpumem): f"{min(nodes)}x12 1x17"},
    )


def _pending(resource: str) -> Alert:
    requests = f'{{__name__=~"kube_pod_(init_)?container_resource_requests", resource="{sanitised(resource)}"}}'
    return Alert(
        "GpuMemoryPending",
        f"sum by (namespace, pod) (max by (namespace, pod, container) ({requests})) and on (namespace, pod)"
        f" max by (namespace, pod) ({_UNSCHEDULABLE}) == 1",
        hold="10m",
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.pod }} waits for {{ $value }} MiB of GPU memory",
        description=(
            f"The pod requests {{{{ $value }}}} MiB {resource} and has had no node for 10 minutes. If it has a seat, "
            "find the nodes of the other seats' pods. Otherwise give it a seat in the stack file."
        ),
        fires={_OF_CHAT: "1x30"},
        silent={_OF_CHAT: "0x30"},
    )


def _full() -> Alert:
    promised, advertised = (
        f"max by (pool) ({name})" for name in (names.METRIC_POOL_PROMISED, names.METRIC_POOL_ADVERTISED)
    )
    return Alert(
        "GpuLedgerFull",
        f"{promised} >= {advertised}",
        hold="15m",
        severity="warning",
        summary="Pool {{ $labels.pool }} has no memory left to promise",
        description=(
            "{{ $value | humanize1024 }}B are promised, which is the pool's whole advertised memory. For a new "
            "resident, lower another resident's seat or add a device. make chart draws all seats."
        ),
        fires={names.METRIC_POOL_PROMISED: "2x30", names.METRIC_POOL_ADVERTISED: "2x30"},
        silent={names.METRIC_POOL_PROMISED: "1x30", names.METRIC_POOL_ADVERTISED: "2x30"},
    )
