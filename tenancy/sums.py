"""Compares the sums of a ledger with its devices.

Each contradiction is a message with the amounts and the key to change. The policy pack and the check of the settings
report these messages. The removal of a promise never adds a contradiction.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from tenancy import dispatch, shares
from tenancy.choices import Sharing
from tenancy.full_seats import FullSeats, full_seats
from tenancy.ledger import Ledger, Pool, Seat
from tenancy.names import GPU, LABEL_HOSTNAME

_SHOWN = 2  # the number of promises that a message names, with the largest first
_PARTS = 7  # MIG divides a device into at most seven parts.
_SLICE = r"nvidia\.com/mig-(?:\d+c\.)?([1-7])g\..*"
GPUS = f"{GPU} (nominal and borrowed)"


def contradictions(ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Yields the rule id and the message of each contradiction.

    Ignores borrowed quota, because Kueue lends only what other queues do not use.
    """
    own = replace(ledger, quotas=tuple(replace(quota, borrowing=0) for quota in ledger.quotas))
    for rule, lines in {
        "budgets": budgets(ledger),
        "physical": pool_numbers(ledger),
        "seat-size": seat_sizes(ledger),
        "full-seats": full_pools(ledger),
        "node-shares": shares.overdrawn(ledger),
        "gpu-quota": (*gpu_quotas(own), *slices(own)),
        "clusters": dispatch.overdrawn(own),
    }.items():
        yield from ((rule, line) for line in lines)


def budgets(ledger: Ledger) -> Iterator[str]:
    """Reports a pool that promises more than it advertises."""
    for pool in ledger.shared_pools:
        promised, advertised = ledger.promised_mib(pool.name), pool.advertised_mib
        if promised > advertised:
            replicas = any(seat.replicas > 1 for seat in ledger.seats_in(pool.name)[:_SHOWN])
            yield (
                f"{pool.name}: {promised} MiB promised, {advertised} advertised ({promised - advertised} over): "
                f"{_largest(ledger, pool.name)}; lower a budget{' or its replicas,' if replicas else ''}{pool.or_raise}"
            )


def _largest(ledger: Ledger, pool: str) -> str:
    promises = [(s.total_mib, f"{s.name} {_amount(s)}") for s in ledger.seats_in(pool)]
    quotas = (q for q in ledger.quotas if q.pool == pool and q.resource == ledger.names.gpumem)
    promises += [(q.nominal, f"{q.holder} {q.nominal}") for q in quotas]
    promises.sort(key=lambda promise: -promise[0])
    shown = [text for _, text in promises[:_SHOWN]]
    return ", ".join([*shown, "…"] if len(promises) > _SHOWN else shown)


def _amount(seat: Seat) -> str:
    devices = f" on {seat.devices_per_pod} devices" if seat.devices_per_pod > 1 else ""
    return f"{seat.gpumem_mib}{devices}{f' x {seat.replicas}' if seat.replicas > 1 else ''}"


def pool_numbers(ledger: Ledger) -> Iterator[str]:
    """Reports a pool without devices, a pool without memory above its reserve, and a pool with more nodes than its
    selector can match.
    """
    for pool in ledger.pools:
        if min(pool.nodes, pool.device_count) < 1:
            yield f"pools.{pool.name}: {pool.nodes} nodes x {pool.device_count} devices is no pool"
        if pool.nodes > 1 and not pool.has_room_for_nodes:
            yield (
                f"pools.{pool.name}: {pool.nodes} nodes, and its node_selector has {LABEL_HOSTNAME}, which matches "
                "one; write nodes: 1, or select by labels that all its nodes have"
            )
        if pool.sharing is not Sharing.MEMORY:
            continue
        if not _leaves_some(pool):
            yield (
                f"{pool.name}: a device has {pool.memory_mib} MiB and {pool.reserve_mib} of them reserved, which "
                f"leaves {pool.memory_mib - pool.reserve_mib} to advertise; change pools.{pool.name}.reserve_mib"
            )
        elif not 0 <= pool.floor_mib < pool.device_mib:
            yield (
                f"{pool.name}: floor {pool.floor_mib} MiB, but a device offers {pool.device_mib}: it would be pressed "
                f"when empty; lower pools.{pool.name}.floor_mib"
            )


def _leaves_some(pool: Pool) -> bool:
    return 0 <= pool.reserve_mib < pool.memory_mib


def seat_sizes(ledger: Ledger) -> Iterator[str]:
    """Reports a seat that is larger than one device of its pool, or that needs more devices than a node has."""
    for seat in ledger.seats:
        pool = ledger.pool(seat.pool)
        if pool is not None and 0 < pool.device_count < seat.devices_per_pod:
            yield (
                f"{seat.name}: {seat.devices_per_pod} devices a replica, a node of {pool.name} has "
                f"{pool.device_count}; lower residents.{seat.name}.devices_per_pod"
            )
        if pool is not None and pool.sharing is Sharing.MEMORY and seat.gpumem_mib > pool.device_mib:
            yield (
                f"{seat.name}: {seat.gpumem_mib} MiB a replica, a device of {pool.name} offers {pool.device_mib}; "
                f"lower residents.{seat.name}.gpumem_mib"
            )


def full_pools(ledger: Ledger) -> Iterator[str]:
    """Reports a pool in which a device is too small for its floor if its seats use their whole budgets.

    Also reports a reserve that is too small for the driver and the unbudgeted workloads.
    """
    for pool in ledger.shared_pools:
        if not _leaves_some(pool):
            continue  # the function pool_numbers reports this pool
        full = full_seats(ledger, pool)
        if full.reserve_short_mib > 0:
            yield _short(full)
        said_otherwise = pool.floor_mib >= pool.device_mib or ledger.promised_mib(pool.name) > pool.advertised_mib
        if full.over_mib > 0 and not said_otherwise:
            yield _over(full)


def _short(full: FullSeats) -> str:
    pool = full.pool
    return (
        f"{pool.name}: a reserve of {pool.reserve_mib} MiB for {full.beside_mib}: {pool.driver_reserved_mib} of the "
        f"driver and {full.unbudgeted_mib} of workloads without a budget, which may all run on one device "
        f"({full.reserve_short_mib} short); raise pools.{pool.name}.reserve_mib to {full.beside_mib}, or have a "
        "workload of unbudgeted take a seat"
    )


def _over(full: FullSeats) -> str:
    pool, most = full.pool, full.promised_mib
    return (
        f"{pool.name}: a device may have {most} MiB promised, and its floor is {pool.floor_mib}: "
        f"{most + pool.floor_mib} of {pool.memory_mib} ({full.over_mib} over), so it would be pressed with nobody over "
        f"budget; lower pools.{pool.name}.floor_mib to {pool.memory_mib - most}, or a budget"
    )


def gpu_quotas(ledger: Ledger) -> Iterator[str]:
    """Reports a queue that may hand out more devices than its pool has, and a pool with fewer devices than its queues'
    nominal quotas have together."""
    for pool in ledger.pools:
        entries = [q for q in ledger.quotas if q.pool == pool.name and q.resource == GPU]
        above = [entry for entry in entries if entry.most > pool.gpus]
        for entry in above:
            holder = entry.holder if entry.cohort else f"ClusterQueue {entry.queue}"
            yield too_many(f"{holder}: may hand out {entry.most} {GPUS}", pool)
        nominal = sum(entry.nominal for entry in entries)
        if nominal > pool.gpus and not above:
            yield too_many(f"{pool.name}: queues have {nominal} {GPU}", pool)


def slices(ledger: Ledger) -> Iterator[str]:
    """Reports queues that hand out more MIG slices than the devices of their pool can be divided into.

    A slice of Ng takes N of the seven parts of a device. The devices may also be divided in a way that gives fewer.
    Source: the table of profiles in NVIDIA's MIG User Guide.
    """
    for pool in ledger.pools:
        entries = [(q, _parts_of(q.resource)) for q in ledger.quotas if q.pool == pool.name and _parts_of(q.resource)]
        above = [(q, pool.gpus * (_PARTS // parts)) for q, parts in entries if q.resource != GPU]
        above = [(quota, most) for quota, most in above if quota.most > most]
        for quota, most in above:
            what = f"{quota.holder}: may hand out {quota.most} {quota.resource} (nominal and borrowed)"
            yield _too_many_slices(what, pool, f"{most} at most")
        parts = sum(quota.nominal * size for quota, size in entries)
        if not above and parts > pool.gpus * _PARTS and any(quota.resource != GPU for quota, _ in entries):
            listed = " and ".join(f"{quota.nominal} {quota.resource}" for quota, _ in entries if quota.nominal)
            yield _too_many_slices(f"{pool.name}: queues have {listed}, {parts} parts", pool, f"{pool.gpus * _PARTS}")


def _too_many_slices(what: str, pool: Pool, most: str) -> str:
    fix = f"lower nominal or borrowing_limit{pool.or_raise}"
    return f"{what}, and its {pool.gpus} devices have {most}; {fix}"


def _parts_of(resource: str) -> int:
    """Returns the number of the seven parts of a device that one unit of the resource takes, or 0 for a resource that
    is no whole device and no slice."""
    if resource == GPU:
        return _PARTS
    slice_ = re.fullmatch(_SLICE, resource)
    return int(slice_[1]) if slice_ else 0


def too_many(what: str, pool: Pool) -> str:
    return (
        f"{what} of {pool.name}, which has {pool.gpus}; lower nominal or borrowing_limit,{pool.or_raise}".removesuffix(
            ","
        )
    )
