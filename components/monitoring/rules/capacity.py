"""Alerts on capacity: what nodes advertise, which pods wait for it, what is left to promise."""

from collections import Counter
from collections.abc import Iterator

from components.base.manifest import Manifest
from components.monitoring.args import AlertsArgs
from components.monitoring.rules.alert import alert, allocatable, sanitised
from tenancy import names
from tenancy.ledger import Ledger

# Of kube-state-metrics; not while an image is pulled, which is after a node was found, nor behind a scheduling gate.
_UNSCHEDULABLE = "kube_pod_status_unschedulable"


def rules(args: AlertsArgs) -> Iterator[Manifest]:
    """What nodes advertise only where they do; where seats are claimed, who waits is known by the tenant."""
    if args.advertised:
        yield _drift(args.ledger)
        yield _pending(args.ledger.names.gpumem)
    elif args.ledger.seats:
        yield _claims_pending(args.ledger)
    yield _full()


def _drift(ledger: Ledger) -> Manifest:
    """By node: one that shows too much must not make up for one that shows too little. Only where each shows what some
    pool's nodes do is their number looked at."""
    shown, nodes = allocatable(ledger.names.gpumem), Counter[int]()
    for pool in ledger.shared_pools:
        nodes[pool.node_mib] += pool.nodes
    by = " or ResourceSlices" if ledger.reads_slices else ""
    as_declared = " or ".join(f"{shown} == {mib}" for mib in sorted(nodes))
    odd = f"({shown} unless ({as_declared}))"
    few = " or ".join(f"(count({shown} == {mib}) or vector(0)) != {number}" for mib, number in sorted(nodes.items()))
    wanted = " and ".join(f"{number} nodes with {mib} MiB" for mib, number in sorted(nodes.items()))
    return alert(
        "GpuCapacityDrift",
        f"{odd} or (({few}) unless on () {odd})",
        hold="3m",
        severity="critical",
        summary=(
            "{{ if $labels.node }}{{ $labels.node }} advertises {{ $value }} MiB, as no pool has it"
            "{{ else }}{{ $value }} nodes advertise what a pool has, which is not their number{{ end }}"
        ),
        description=(
            f"{names.RECONCILE} keeps {wanted} of {ledger.names.gpumem}. A node is missing or one too many, its "
            f"labels{by} changed, it refuses the write, or more is bound to it than the ledger gives: see the log of "
            f"{names.RECONCILE} and the node's events."
        ),
    )


def _pending(resource: str) -> Manifest:
    """Sidecars are init containers. Several replicas of kube-state-metrics count once."""
    requests = f'{{__name__=~"kube_pod_(init_)?container_resource_requests", resource="{sanitised(resource)}"}}'
    return alert(
        "GpuMemoryPending",
        f"sum by (namespace, pod) (max by (namespace, pod, container) ({requests})) and on (namespace, pod)"
        f" max by (namespace, pod) ({_UNSCHEDULABLE}) == 1",
        hold="10m",
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.pod }} waits for {{ $value }} MiB of GPU memory",
        description=(
            f"The pod requests {{{{ $value }}}} MiB {resource} and has had no node for 10 minutes. If it has a seat, "
            "see where the other seats' pods are bound; else give it one in the stack."
        ),
    )


def _claims_pending(ledger: Ledger) -> Manifest:
    tenants = "|".join(sorted({seat.tenant for seat in ledger.seats}))
    return alert(
        "GpuMemoryPending",
        f'max by (namespace, pod) ({_UNSCHEDULABLE}{{namespace=~"{tenants}"}}) == 1',
        hold="10m",
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.pod }} waits for a node",
        description=(
            "A pod of a tenant with seats has had no node for 10 minutes. If it claims a seat, see where the other "
            "pods of that seat are bound; else give it one in the stack."
        ),
    )


def _full() -> Manifest:
    promised, advertised = (
        f"max by (pool) ({name})" for name in (names.METRIC_POOL_PROMISED, names.METRIC_POOL_ADVERTISED)
    )
    return alert(
        "GpuLedgerFull",
        f"{promised} >= {advertised}",
        hold="15m",
        severity="warning",
        summary="Pool {{ $labels.pool }} has no memory left to promise",
        description=(
            "{{ $value | humanize1024 }}B are promised, all that is advertised. A new resident needs a lower seat "
            "elsewhere or another device; make chart shows who has what."
        ),
    )
