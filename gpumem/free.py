"""free: what is free by pool and device, by the ledger and as measured, and what is lent out. Pure."""

from dataclasses import dataclass

from gpumem.cluster import ClusterSnapshot
from gpumem.who import DeviceRow, Filter, NodeRow, WholeRow, check_pool, who
from tenancy.ledger import Pool, Sharing


@dataclass(frozen=True, kw_only=True)
class FreeDevice:
    """A device; `free_mib` and `room_mib` are as of `who`."""

    node: str
    index: int
    uuid: str
    offered_mib: int
    held_mib: int
    room_mib: int
    free_mib: int
    measured_free_mib: int | None
    healthy: bool
    excluded: bool


@dataclass(frozen=True, kw_only=True)
class FreePool:
    """`advertised_mib`, `promised_mib` and `unpromised_mib` are the ledger's: of all nodes that the pool is to have.

    Of the devices that are there: what pods hold; what that leaves, in sum and on the one device with the most
    (`room_*`, which a seat gets); and what a pod without a seat could have now (`free_*`). None where the pods of
    others are not known. `measured_free_mib` and `lent_mib` are None where not all devices are measured: `lent_mib` is
    what pods use that declare nothing, on-demand ones for the most part.
    """

    pool: str
    advertised_mib: int
    promised_mib: int
    unpromised_mib: int
    floor_mib: int
    held_mib: int | None
    room_mib: int | None
    largest_room_mib: int | None
    free_mib: int | None
    largest_free_mib: int | None
    measured_free_mib: int | None
    lent_mib: int | None
    devices: tuple[FreeDevice, ...]


@dataclass(frozen=True, kw_only=True)
class FreeWhole:
    """A pool whose devices are handed out whole: how many it is to have, are promised to queues, are there, and held;
    None where the pods of others are not known."""

    pool: str
    gpus: int
    promised: int
    offered: int
    held: int | None


@dataclass(frozen=True, kw_only=True)
class Free:
    """`scope` is the one namespace whose pods are known, None for all. `own_*` are that namespace's: its budget, and
    what its pods hold of it."""

    scope: str | None
    pools: tuple[FreePool, ...]
    whole: tuple[FreeWhole, ...]
    own_budget_mib: int | None
    own_held_mib: int | None
    unknown: tuple[str, ...]


def free(cluster: ClusterSnapshot, pool: str | None = None) -> Free:
    """Every pool, or one. Raises PoolError."""
    check_pool(cluster.ledger, pool)
    found = who(cluster, Filter(pool=pool))
    ledger, own = cluster.ledger, cluster.own
    pools = [each for each in ledger.pools if pool in (None, each.name)]
    return Free(
        scope=own,
        pools=tuple(
            _shared(cluster, each, [node for node in found.nodes if node.pool == each.name])
            for each in pools
            if each.sharing is Sharing.MEMORY
        ),
        whole=tuple(
            _whole(cluster, each, [row for row in found.whole if row.pool == each.name])
            for each in pools
            if each.sharing is Sharing.WHOLE
        ),
        own_budget_mib=None if own is None else ledger.budget_mib(own),
        own_held_mib=None if own is None else sum(pod.ask.total_mib for pod in cluster.bound().values()),
        unknown=found.unknown,
    )


def _shared(cluster: ClusterSnapshot, pool: Pool, nodes: list[NodeRow]) -> FreePool:
    devices = [(node.node, device) for node in nodes for device in node.devices]
    rows = [device for _, device in devices]
    promised_mib = cluster.ledger.promised_mib(pool.name)
    return FreePool(
        pool=pool.name,
        advertised_mib=pool.advertised_mib,
        promised_mib=promised_mib,
        unpromised_mib=pool.advertised_mib - promised_mib,
        floor_mib=pool.floor_mib,
        held_mib=_if(cluster.whole, sum(row.held_mib for row in rows)),
        room_mib=_if(cluster.whole, sum(row.room_mib for row in rows)),
        largest_room_mib=_if(cluster.whole, max((row.room_mib for row in rows), default=0)),
        free_mib=_if(cluster.whole, sum(row.free_mib for row in rows)),
        largest_free_mib=_if(cluster.whole, max((row.free_mib for row in rows), default=0)),
        measured_free_mib=_sum([row.measured_free_mib for row in rows]),
        lent_mib=_lent_mib(rows),
        devices=tuple(_device(node, row) for node, row in devices) if cluster.whole else (),
    )


def _device(node: str, row: DeviceRow) -> FreeDevice:
    return FreeDevice(
        node=node,
        index=row.index,
        uuid=row.uuid,
        offered_mib=row.offered_mib,
        held_mib=row.held_mib,
        room_mib=row.room_mib,
        free_mib=row.free_mib,
        measured_free_mib=row.measured_free_mib,
        healthy=row.healthy,
        excluded=row.excluded,
    )


def _lent_mib(rows: list[DeviceRow]) -> int | None:
    if not rows or any(row.measured_free_mib is None or any(p.used_mib is None for p in row.pods) for row in rows):
        return None
    return sum(pod.used_mib or 0 for row in rows for pod in row.pods if pod.state == "unbudgeted")


def _whole(cluster: ClusterSnapshot, pool: Pool, nodes: list[WholeRow]) -> FreeWhole:
    return FreeWhole(
        pool=pool.name,
        gpus=pool.gpus,
        promised=cluster.ledger.quota_gpus(pool.name),
        offered=sum(row.offered or 0 for row in nodes),
        held=_if(cluster.whole, sum(row.held for row in nodes)),
    )


def _if(known: bool, mib: int) -> int | None:
    return mib if known else None


def _sum(parts: list[int | None]) -> int | None:
    """None where one is not known, or there are none."""
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None
