"""Sums up the devices of each pool: the free memory, by the ledger and as measured, and the free devices. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpumem.cluster import ClusterSnapshot
from gpumem.rows import DeviceRow, NodeRow, WholeRow
from tenancy.choices import Sharing
from tenancy.fit.lower import largest_seat
from tenancy.ledger import Pool


@dataclass(frozen=True, kw_only=True)
class PoolRow:
    """A pool that shares memory.

    `advertised_mib`, `promised_mib` and `unpromised_mib` are sums over all nodes that the ledger declares. All
    other sums are over the devices that exist. `largest_new_mib` is the largest budget of a new seat that the gate
    accepts, or None if the search for it took too long. `free_mib` is the free memory for seats. `room_mib` is the
    free memory for pods without a seat. `largest_free_mib` and `largest_room_mib` are the maximum for one device.
    The amounts of free memory are None if the user may not list all pods, or if the devices of a node that takes
    pods are not known. `lent_mib` is the use by pods without a budget. `lent_mib` and `measured_free_mib` are None
    if a device of the pool is not measured.
    """

    pool: str
    advertised_mib: int
    promised_mib: int
    unpromised_mib: int
    largest_new_mib: int | None
    floor_mib: int
    held_mib: int | None
    free_mib: int | None
    largest_free_mib: int | None
    room_mib: int | None
    largest_room_mib: int | None
    measured_free_mib: int | None
    lent_mib: int | None


@dataclass(frozen=True, kw_only=True)
class WholePoolRow:
    """A pool of whole devices.

    `gpus` is the number of declared devices, and `promised` is the number of devices that are promised to queues.
    `offered` is the number of advertised devices, and `held` is the number of devices that pods hold. `free` is the
    number of devices for new pods. `held` and `free` are None if the user may not list all pods.
    """

    pool: str
    gpus: int
    promised: int
    offered: int
    held: int | None
    free: int | None


def pool_rows(cluster: ClusterSnapshot, only: str | None, nodes: Iterable[NodeRow]) -> Iterator[PoolRow]:
    """Yields every pool that shares memory, or only the named pool. `nodes` must have all pods of the pools."""
    for pool in cluster.ledger.shared_pools:
        if only in (None, pool.name):
            yield _shared(cluster, pool, [node for node in nodes if node.pool == pool.name])


def whole_pool_rows(cluster: ClusterSnapshot, only: str | None, nodes: Iterable[WholeRow]) -> Iterator[WholePoolRow]:
    """Yields every pool of whole devices, or only the named pool."""
    for pool in cluster.ledger.pools:
        if pool.sharing is Sharing.WHOLE and only in (None, pool.name):
            mine = [node for node in nodes if node.pool == pool.name]
            yield WholePoolRow(
                pool=pool.name,
                gpus=pool.gpus,
                promised=cluster.ledger.quota_gpus(pool.name),
                offered=sum(each.offered or 0 for each in mine),
                held=_if(cluster.whole, sum(each.held for each in mine)),
                free=_if(cluster.whole, sum(each.free for each in mine)),
            )


def _shared(cluster: ClusterSnapshot, pool: Pool, nodes: list[NodeRow]) -> PoolRow:
    promised_mib = cluster.ledger.promised_mib(pool.name)
    rows = [device for node in nodes for device in node.devices]
    known = cluster.whole and all(node.devices or node.unusable for node in nodes)
    return PoolRow(
        pool=pool.name,
        advertised_mib=pool.advertised_mib,
        promised_mib=promised_mib,
        unpromised_mib=pool.advertised_mib - promised_mib,
        largest_new_mib=largest_seat(cluster.ledger, pool),
        floor_mib=pool.floor_mib,
        held_mib=_if(cluster.whole, sum(each.held_mib for each in rows)),
        free_mib=_if(known, sum(node.free_mib for node in nodes)),
        largest_free_mib=_if(known, max((each.free_mib for each in rows), default=0)),
        room_mib=_if(known, sum(each.room_mib for each in rows)),
        largest_room_mib=_if(known, max((each.room_mib for each in rows), default=0)),
        measured_free_mib=_sum([each.measured_free_mib for each in rows]),
        lent_mib=_lent_mib(rows),
    )


def _lent_mib(rows: list[DeviceRow]) -> int | None:
    if not rows or any(each.measured_free_mib is None or any(p.used_mib is None for p in each.pods) for each in rows):
        return None
    return sum(pod.used_mib or 0 for each in rows for pod in each.pods if pod.state == "unbudgeted")


def _if(known: bool, mib: int) -> int | None:
    return mib if known else None


def _sum(parts: list[int | None]) -> int | None:
    """Returns the sum of the parts. Returns None if there are no parts, or if a part is unknown."""
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None
