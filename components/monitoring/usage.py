"""Records each tenant's promises and use by the minute. `kubectl gpumem bill` adds the recordings up over a month."""

from collections.abc import Iterator, Mapping

from components.base.manifest import Manifest
from tenancy import names

INTERVAL_SECONDS = 60
MEANINGS: Mapping[str, str] = {
    names.RECORDED_SEATS: "The seats of the tenant, for `kubectl gpumem bill`.",
    names.RECORDED_USED: "The use of the tenant's pods, for `kubectl gpumem bill`.",
}


def recordings() -> Iterator[Manifest]:
    """Returns the recordings, by tenant and pool. All exporters of a pool serve its seats, so each seat counts once."""
    seats = f"max by (tenant, pool, seat) ({names.METRIC_SEAT})"
    yield {"record": names.RECORDED_SEATS, "expr": f"sum by (tenant, pool) ({seats})"}
    used = f'max by (namespace, pod_uid, container, node, uuid) ({names.METRIC_POD_USED}{{namespace!=""}})'
    tenants = f'label_replace({used}, "tenant", "$1", "namespace", "(.+)")'
    pools = f"(0 * max by (node, pool) ({names.METRIC_POOL_FLOOR}) + 1)"
    yield {
        "record": names.RECORDED_USED,
        "expr": f"sum by (tenant, pool) ({tenants} * on (node) group_left (pool) {pools})",
    }
