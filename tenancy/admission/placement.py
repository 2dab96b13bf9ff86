"""Finds the nodes of each tenant's GPU pods, from the pools of the tenant's workloads and queues."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tenancy.choices import Sharing
from tenancy.ledger import Ledger, OnDemand, Seat, Unbudgeted


@dataclass(frozen=True, kw_only=True)
class PoolPlacement:
    """A group of tenants with devices in the same pools, and the labels that all nodes of these pools have.

    `name` is unique, because no pool's name has a dot. `seats` has the seat labels of the pods in these pools, for
    tenants with seats in several pools. "" is a pod without the label.
    """

    name: str
    tenants: Sequence[str]
    node_selector: Mapping[str, str]
    seats: Mapping[str, Sequence[str]] = field(default_factory=dict)


def queue_tenant_placements(ledger: Ledger) -> list[PoolPlacement]:
    """Groups the queue tenants by the pools of the whole devices in their queues' quotas. If a queue has several pools,
    Kueue adds the node labels of the chosen flavor to the pod.
    """
    selectors = {pool.name: pool.node_selector for pool in ledger.pools if pool.sharing is Sharing.WHOLE}
    reached: dict[str, set[str]] = {}
    for quota in ledger.quotas:
        reached.setdefault(quota.holder, set()).update({quota.pool} & selectors.keys())
    pools: dict[str, set[str]] = {}
    for queue in ledger.local_queues:
        pools.setdefault(queue.tenant, set()).update(reached.get(queue.queue, ()))
    return _grouped(pools, selectors)


def other_tenant_placements(ledger: Ledger) -> list[PoolPlacement]:
    """Groups the tenants without a queue by the pools of their workloads. Queue tenants have no group, because their
    pods can run in another pool. A tenant with seats in several pools has a group in `seat_placements`."""
    pools: dict[str, set[str]] = {}
    users: Iterable[Seat | OnDemand | Unbudgeted] = (*ledger.seats, *ledger.on_demand, *ledger.unbudgeted)
    for user in users:
        if user.tenant not in ledger.queue_tenants and not ledger.pool_by_label(user.tenant):
            pools.setdefault(user.tenant, set()).add(user.pool)
    return _grouped(pools, {pool.name: pool.node_selector for pool in ledger.pools})


def seat_placements(ledger: Ledger) -> list[PoolPlacement]:
    """Groups the seats of tenants with seats in several pools by pool. A queue tenant's pod without a seat label can
    run in another pool."""
    found: dict[str, dict[str, list[str]]] = {}
    for tenant in sorted(ledger.tenants_by_name):
        for seat, pool in ledger.pool_by_label(tenant).items():
            if seat or tenant not in ledger.queue_tenants:
                found.setdefault(pool, {}).setdefault(tenant, []).append(seat)
    return [
        PoolPlacement(name=f"{pool.name}.seats", tenants=[*seats], node_selector=pool.node_selector, seats=seats)
        for pool in ledger.pools
        if (seats := found.get(pool.name)) and pool.node_selector
    ]


def _grouped(pools: Mapping[str, Collection[str]], selectors: Mapping[str, Mapping[str, str]]) -> list[PoolPlacement]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for tenant in sorted(pools):
        groups.setdefault(tuple(sorted(pools[tenant])), []).append(tenant)
    return [
        PoolPlacement(name=".".join(names), tenants=tenants, node_selector=shared)
        for names, tenants in groups.items()
        if (shared := _in_common([selectors[name] for name in names]))
    ]


def _in_common(selectors: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first, *rest = selectors or [{}]
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in rest)}
