"""Implements `kubectl gpumem free`.

Reports the free memory of each pool and device, by the ledger and as measured. Pure.
"""

from dataclasses import dataclass

from gpumem.cluster import ClusterSnapshot
from gpumem.queues import QueueRow
from gpumem.report import row
from gpumem.who import DeviceFigures, DeviceRow, Filter, NodeRow, WholeRow, check_pool, who
from tenancy.choices import Sharing
from tenancy.ledger import Pool


@dataclass(frozen=True, kw_only=True)
class FreeDevice(DeviceFigures):
    """The figures of one device, with the name of its node."""

    node: str


@dataclass(frozen=True, kw_only=True)
class FreePool:
    """A pool that shares memory.

    `advertised_mib`, `promised_mib` and `unpromised_mib` are sums over all nodes that the ledger declares. All other
    sums are over the devices that exist. `room_mib` is the free memory for seats. `free_mib` is the free memory for
    pods without a seat. `largest_room_mib` and `largest_free_mib` are the maximum for one device. The amounts of free
    memory are None if the user may not list all pods. `lent_mib` is the use by pods without a budget. `lent_mib` and
    `measured_free_mib` are None if a device of the pool is not measured.
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
    """A pool of whole devices.

    `gpus` is the number of declared devices, and `promised` is the number of devices that are promised to queues.
    `offered` is the number of advertised devices, and `held` is the number of devices that pods hold. `held` is None if
    the user may not list all pods.
    """

    pool: str
    gpus: int
    promised: int
    offered: int
    held: int | None


@dataclass(frozen=True, kw_only=True)
class Free:
    """The report of `kubectl gpumem free`.

    `scope` is the only namespace in the report, or None for all namespaces. `own` is the tenant that the user asks
    about, or None. `own_budget_mib` is the sum of this tenant's seats. `own_held_mib` is the sum that the tenant's pods
    hold.
    """

    scope: str | None
    own: str | None
    pools: tuple[FreePool, ...]
    whole: tuple[FreeWhole, ...]
    queues: tuple[QueueRow, ...]
    own_budget_mib: int | None
    own_held_mib: int | None
    unknown: tuple[str, ...]
    observed: str = ""


def free(cluster: ClusterSnapshot, pool: str | None = None, namespace: str | None = None) -> Free:
    """Returns the report on every pool, or on the named pool. Raises UnknownNameError.

    With `namespace`, the report has the budget of this tenant.
    """
    check_pool(cluster.ledger, pool)
    found = who(cluster, Filter(pool=pool))
    ledger, own = cluster.ledger, cluster.own or namespace
    pools = [each for each in ledger.pools if pool in (None, each.name)]
    return Free(
        observed=cluster.ledger.observed,
        scope=cluster.own,
        own=own,
        pools=tuple(
            _shared(cluster, each, [node for node in found.nodes if node.pool == each.name])
            for each in pools
            if each.sharing is Sharing.MEMORY
        ),
        whole=tuple(
            _whole(cluster, each, [node for node in found.whole if node.pool == each.name])
            for each in pools
            if each.sharing is Sharing.WHOLE
        ),
        queues=found.queues,
        own_budget_mib=None if own is None else ledger.budget_mib(own),
        own_held_mib=None
        if own is None
        else sum(pod.request.total_mib for pod in cluster.bound().values() if pod.namespace == own),
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
        held_mib=_if(cluster.whole, sum(each.held_mib for each in rows)),
        room_mib=_if(cluster.whole, sum(each.room_mib for each in rows)),
        largest_room_mib=_if(cluster.whole, max((each.room_mib for each in rows), default=0)),
        free_mib=_if(cluster.whole, sum(each.free_mib for each in rows)),
        largest_free_mib=_if(cluster.whole, max((each.free_mib for each in rows), default=0)),
        measured_free_mib=_sum([each.measured_free_mib for each in rows]),
        lent_mib=_lent_mib(rows),
        devices=tuple(row(FreeDevice, each, node=node) for node, each in devices) if cluster.whole else (),
    )


def _lent_mib(rows: list[DeviceRow]) -> int | None:
    if not rows or any(each.measured_free_mib is None or any(p.used_mib is None for p in each.pods) for each in rows):
        return None
    return sum(pod.used_mib or 0 for each in rows for pod in each.pods if pod.state == "unbudgeted")


def _whole(cluster: ClusterSnapshot, pool: Pool, nodes: list[WholeRow]) -> FreeWhole:
    return FreeWhole(
        pool=pool.name,
        gpus=pool.gpus,
        promised=cluster.ledger.quota_gpus(pool.name),
        offered=sum(each.offered or 0 for each in nodes),
        held=_if(cluster.whole, sum(each.held for each in nodes)),
    )


def _if(known: bool, mib: int) -> int | None:
    return mib if known else None


def _sum(parts: list[int | None]) -> int | None:
    """Returns the sum of the parts. Returns None if there are no parts, or if a part is unknown."""
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None
