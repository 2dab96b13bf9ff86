"""The part of a node that the pod of a promise may request beside its GPU memory.

A pod that reaches a GPU has a high PriorityClass. Without a bound on its other requests, one seat of a few GiB could
preempt every pod of a node, and then leave the CPU for no other seat. Units: thousandths of a CPU, MiB of host memory.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from tenancy.choices import Sharing
from tenancy.ledger import Ledger, OnDemand, Pool, Seat, Unbudgeted

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Share:
    """The most that a pod may request. None is no bound, because the pool doesn't say what its nodes have."""

    milli_cpus: int | None
    host_memory_mib: int | None

    def or_larger(self, other: "Share") -> "Share":
        """Returns, of each resource, the larger bound."""
        return Share(_larger(self.milli_cpus, other.milli_cpus), _larger(self.host_memory_mib, other.host_memory_mib))


def share_of(pool: Pool, promise: Seat | OnDemand | Unbudgeted) -> Share:
    """Returns the share of one device of a pod. By default, this is the part of a node's CPUs and host memory that the
    promised MiB are of the node's GPU memory. An unbudgeted workload has no bound by default, because its measured use
    says nothing about what it may need.
    """
    devices = promise.devices_per_pod if isinstance(promise, Seat) else 1
    node_mib = pool.memory_mib * pool.device_count
    mib = {Seat: "gpumem_mib", OnDemand: "need_mib"}.get(type(promise))
    part = getattr(promise, mib) / node_mib if mib and node_mib else None
    cpus = promise.cpus / devices if promise.cpus is not None else _part(part, pool.cpus)
    memory = promise.host_memory_mib / devices if promise.host_memory_mib else _part(part, pool.host_memory_mib)
    return Share(None if cpus is None else round(cpus * 1000), None if memory is None else round(memory))


def shares(ledger: Ledger) -> dict[str, dict[int, Share]]:
    """Returns the shares of each tenant, by the gpumem of a pod on each device. Pods without gpumem are at 0. Without
    the seats whose pods must have a label (tenants in several pools), where one size may have different shares."""
    found: dict[str, dict[int, Share]] = {}
    promises: Sequence[Seat | OnDemand | Unbudgeted] = (*ledger.seats, *ledger.on_demand, *ledger.unbudgeted)
    for promise in promises:
        pool = ledger.pool(promise.pool)
        if pool is None or pool.sharing is not Sharing.MEMORY:
            continue
        labelled = promise.tenant not in ledger.queue_tenants  # Admission lets a queue tenant's pod leave it out.
        if isinstance(promise, Seat) and labelled and ledger.pool_by_label(promise.tenant):
            continue
        mib = promise.gpumem_mib if isinstance(promise, Seat) else 0
        own, of = found.setdefault(promise.tenant, {}), share_of(pool, promise)
        own[mib] = of.or_larger(own[mib]) if mib in own else of
    return _bound(found)


def seat_shares(ledger: Ledger) -> dict[str, dict[str, Share]]:
    """Returns the shares of the seats of tenants in several pools, by tenant and by seat label."""
    found: dict[str, dict[str, Share]] = {}
    for seat in ledger.seats:
        pool = ledger.pool(seat.pool)
        if pool is not None and pool.sharing is Sharing.MEMORY and ledger.pool_by_label(seat.tenant):
            found.setdefault(seat.tenant, {})[seat.name] = share_of(pool, seat)
    return _bound(found)


def overdrawn(ledger: Ledger) -> Iterator[str]:
    """Reports a pool whose seats may together request more than its nodes have.

    Parts of a node add up to less than the node, so that only a seat with a bound of its own can be the cause.
    """
    for pool, key in product(ledger.shared_pools, ("cpus", "host_memory_mib")):
        seats, of_a_node = ledger.seats_in(pool.name), getattr(pool, key)
        own = {seat: getattr(seat, key) for seat in seats if getattr(seat, key) is not None}
        if of_a_node is None or not own or not pool.memory_mib * pool.gpus:
            continue  # The rule `physical` reports a pool without devices.
        part = sum(seat.total_mib for seat in seats if seat not in own) / (pool.memory_mib * pool.gpus)
        asked = sum(most * seat.replicas for seat, most in own.items()) + part * of_a_node * pool.nodes
        over, largest = asked - of_a_node * pool.nodes, max(own, key=lambda seat: own[seat] * seat.replicas)
        if over > 0:
            to = math.floor(own[largest] - over / largest.replicas)
            change = f"lower residents.{largest.name}.{key} to {to}" if to > 0 else f"lower residents.*.{key}"
            yield (
                f"{pool.name}: its seats may request {asked:.5g} {key} together, and its nodes have "
                f"{of_a_node * pool.nodes:g}; {change}, or raise pools.{pool.name}.{key}"
            )


def _bound(shares: Mapping[str, Mapping[Key, Share]]) -> dict[str, dict[Key, Share]]:
    without = Share(None, None)
    bound = {tenant: {key: s for key, s in own.items() if s != without} for tenant, own in shares.items()}
    return {tenant: own for tenant, own in bound.items() if own}


def _part(part: float | None, of: float | None) -> float | None:
    return None if part is None or of is None else part * of


def _larger(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)
