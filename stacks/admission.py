"""The arguments of the admission policies, from the whole stack: exemptions, tenants without a budget, placement."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from components.admission.pods import AdmissionArgs, AdmissionSpec, ByDevice, PoolPlacement
from components.admission.queued import Queued
from components.admission.seats import Seats
from components.host_memory import tenants_by_priority
from components.queues import QueuesSpec, tenants_of
from stacks.settings import StackSettings
from tenancy.ledger import Ledger, OnDemand, Seat, Sharing, Unbudgeted
from tenancy.names import EXEMPT_BY_NAME, SCHEDULER, kueue_account

_LONGEST_JOINED = 200


def admission_args(spec: AdmissionSpec, settings: StackSettings, ledger: Ledger) -> AdmissionArgs:
    """The arguments. Tenants without a budget have on-demand or unbudgeted workloads, or a queue."""
    return AdmissionArgs(
        spec=spec,
        names=ledger.names,
        exempt=[EXEMPT_BY_NAME],
        tenants=ledger.tenants,
        without_budget=sorted(ledger.tenants_without_budget),
        device_mib=max(pool.device_mib for pool in ledger.pools),
        queued=queued(settings.queues, ledger) if settings.queues else [],
        seated=seated(ledger),
        priority_tenants=tenants_by_priority(settings.memory_pools),
        own=list(ledger.admission.own) if ledger.admission else [],
        queues=Queued(
            seats=Seats(
                names=ledger.names, sizes={seat.tenant: ledger.seat_sizes(seat.tenant) for seat in ledger.seats}
            ),
            tenants=ledger.queue_tenants,
            account=kueue_account(settings.kueue_namespace or ""),
        ),
        pools=ledger.pools,
        by_device=_by_device(settings, ledger) if settings.extender else None,
    )


def _by_device(settings: StackSettings, ledger: Ledger) -> ByDevice:
    return ByDevice(
        account=f"system:serviceaccount:{settings.cluster.system_namespace}:{SCHEDULER}",
        devices=max(pool.device_count for pool in ledger.shared_pools),
    )


def queued(queues: QueuesSpec, ledger: Ledger) -> list[PoolPlacement]:
    """Queue tenants by the pools of whole devices of their queues, with the labels that these pools share. If a queue
    spans pools, Kueue adds the labels of the flavor that it chose."""
    selectors = {pool.name: pool.node_selector for pool in ledger.pools if pool.sharing is Sharing.WHOLE}
    pools: dict[str, set[str]] = {}
    for queue, tenants in tenants_of(queues).items():
        reached = {queues.flavors[flavor].pool for flavor in queues.cluster_queues[queue].quotas} & selectors.keys()
        for tenant in tenants:
            pools.setdefault(tenant, set()).update(reached)
    return _grouped(pools, selectors)


def seated(ledger: Ledger) -> list[PoolPlacement]:
    """The other tenants by the pools of their workloads. Queue tenants are left out: their pods may belong to another
    pool."""
    pools: dict[str, set[str]] = {}
    users: Iterable[Seat | OnDemand | Unbudgeted] = (*ledger.seats, *ledger.on_demand, *ledger.unbudgeted)
    for user in users:
        if user.tenant not in ledger.queue_tenants:
            pools.setdefault(user.tenant, set()).add(user.pool)
    return _grouped(pools, {pool.name: pool.node_selector for pool in ledger.pools})


def _grouped(pools: Mapping[str, Collection[str]], selectors: Mapping[str, Mapping[str, str]]) -> list[PoolPlacement]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for tenant in sorted(pools):
        groups.setdefault(tuple(sorted(pools[tenant])), []).append(tenant)
    return [
        PoolPlacement(name=_joined(names), tenants=tenants, node_selector=shared)
        for names, tenants in groups.items()
        if (shared := _in_common([selectors[name] for name in names]))
    ]


def _joined(pools: Sequence[str]) -> str:
    """A unique name for several pools; no pool's own name has a dot. A policy's name has at most 253 characters."""
    joined = ".".join(pools)
    if len(joined) <= _LONGEST_JOINED:
        return joined
    digest = hashlib.sha256(joined.encode()).hexdigest()[:16]
    return f"{joined[: _LONGEST_JOINED - 17].rstrip('.-')}.{digest}"


def _in_common(selectors: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The labels that every selector has with the same value."""
    first, *rest = selectors or [{}]
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in rest)}
