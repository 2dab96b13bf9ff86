"""What tenants are promised and use, recorded by the minute, so that a month of it is read cheaply.

`kubectl gpumem bill` adds these up, and takes a sample for a minute.
"""

from collections.abc import Iterator

from components.base.manifest import Manifest
from tenancy import names

INTERVAL_SECONDS = 60


def recordings() -> Iterator[Manifest]:
    """By tenant and pool. Each exporter of a pool serves its seats: they count once. The pool of what is used is its
    node's."""
    seats = f"max by (tenant, pool, seat) ({names.METRIC_SEAT})"
    yield {"record": names.RECORDED_SEATS, "expr": f"sum by (tenant, pool) ({seats})"}
    used = f'max by (namespace, pod_uid, container, node, uuid) ({names.METRIC_POD_USED}{{namespace!=""}})'
    tenants = f'label_replace({used}, "tenant", "$1", "namespace", "(.+)")'
    pools = f"(0 * max by (node, pool) ({names.METRIC_POOL_FLOOR}) + 1)"
    yield {
        "record": names.RECORDED_USED,
        "expr": f"sum by (tenant, pool) ({tenants} * on (node) group_left (pool) {pools})",
    }
