"""Recording rules that record the promises and the use of each tenant every minute. `kubectl gpumem bill` reads the
recordings of a month."""

from collections.abc import Iterator, Mapping

from components.base.manifest import Manifest
from tenancy import names

INTERVAL_SECONDS = 60
MEANINGS: Mapping[str, str] = {
    names.RECORDED_SEATS: "Bytes of the tenant's seats in the pool, for `kubectl gpumem bill`.",
    names.RECORDED_USED: "Bytes that the tenant's pods use in the pool, for `kubectl gpumem bill`.",
}


def recordings() -> Iterator[Manifest]:
    """Yields the recording rules, by tenant and pool. All exporters of a pool serve the pool's seats, so `max` counts
    each seat once. A scrape that sets `namespace` itself has renamed the pod's to `exported_namespace`, which then
    names the tenant."""
    seats = f"max by (tenant, pool, seat) ({names.METRIC_SEAT})"
    yield {"record": names.RECORDED_SEATS, "expr": f"sum by (tenant, pool) ({seats})"}
    labels = "namespace, exported_namespace, pod_uid, container, exported_container, node, uuid"
    used = f'max by ({labels}) ({names.METRIC_POD_USED}{{namespace!=""}})'
    tenants = f'label_replace({used}, "tenant", "$1", "namespace", "(.+)")'
    tenants = f'label_replace({tenants}, "tenant", "$1", "exported_namespace", "(.+)")'
    pools = f"(0 * max by (node, pool) ({names.METRIC_POOL_FLOOR}) + 1)"
    yield {
        "record": names.RECORDED_USED,
        "expr": f"sum by (tenant, pool) ({tenants} * on (node) group_left (pool) {pools})",
    }
