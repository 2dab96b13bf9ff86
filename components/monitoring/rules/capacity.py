"""Alerts on capacity: what nodes advertise, which pods wait for it, what is left to promise."""

from collections.abc import Iterator

from components.base.manifest import Manifest
from components.monitoring.args import AlertsArgs
from components.monitoring.rules.alert import alert, allocatable, sanitised
from tenancy import names


def rules(args: AlertsArgs) -> Iterator[Manifest]:
    """Those on the advertised resource only where nodes show it."""
    if args.advertised:
        yield _drift(args)
        yield _pending(args.ledger.names.gpumem)
    yield _full()


def _drift(args: AlertsArgs) -> Manifest:
    pools = args.ledger.shared_pools
    advertised, nodes = sum(pool.advertised_mib for pool in pools), sum(pool.nodes for pool in pools)
    return alert(
        "GpuCapacityDrift",
        f"(sum({allocatable(args.ledger.names.gpumem)}) or vector(0)) != {advertised}",
        hold="3m",
        severity="critical",
        summary=f"{{{{ $value }}}} of {advertised} MiB {args.ledger.names.gpumem} are advertised",
        description=(
            f"{names.RECONCILE} keeps {advertised} MiB on {nodes} nodes. A node is missing, its labels changed, or "
            f"more is bound to it than the ledger gives: see the log of {names.RECONCILE} and the events of the nodes."
        ),
    )


def _pending(resource: str) -> Manifest:
    requests = f'kube_pod_container_resource_requests{{resource="{sanitised(resource)}"}}'
    return alert(
        "GpuMemoryPending",
        f"sum by (namespace, pod) ({requests}) and on (namespace, pod)"
        ' max by (namespace, pod) (kube_pod_status_phase{phase="Pending"}) == 1',
        hold="10m",
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.pod }} waits for {{ $value }} MiB of GPU memory",
        description=(
            f"The pod requests {{{{ $value }}}} MiB {resource} and has been Pending for 10 minutes. If it has a seat, "
            "see where the other seats' pods are bound; else give it one in the stack."
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
