"""Implements `kubectl gpumem fit`: finds devices for new pods, or the smallest change after which the pods fit.

Judges the promises of the ledger and the pods on the devices. Pure.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpumem.cluster import ClusterSnapshot
from gpumem.who import DeviceRow, Filter, Holder, NodeRow, PoolError, who
from tenancy.fit.layout import Budget, DeviceRoom, PlacedPod
from tenancy.fit.lower import lower_budgets, nodes_needed, obstacle
from tenancy.fit.rearrange import rearrange
from tenancy.fit.smallest_change import Change, SmallestChange, Wanted
from tenancy.ledger import Ledger, Pool


@dataclass(frozen=True, kw_only=True)
class FitChange(Change):
    """A change of a workload, with the measured use of its seat.

    If `used_mib` is None, the pods of the seat may need more than the lowered budget.
    """

    used_mib: int | None


@dataclass(frozen=True, kw_only=True)
class FitPart:
    """The result for the promises of the ledger, or for the pods on the devices.

    `fits` is true if the new pods fit without a change. `changes` are the smallest known changes after which the new
    pods fit, or null if the search found none. `touched` is the number of changed workloads, and `mib` is the MiB of
    promises given up. If `proven` is false, the search ended early. At least `least_touched` workloads must change.
    `places` has the devices of each new pod.
    """

    fits: bool = False
    changes: tuple[FitChange, ...] | None = None
    touched: int = 0
    mib: int = 0
    proven: bool = False
    least_touched: int = 0
    least_mib: int = 0
    places: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class FitPool:
    """The result for one pool. `never` is the reason why a new pod does not fit even an empty device, or "".

    If the tenant already has a seat of exactly this size, `seat` is its name and `promises` is null. Without a cluster,
    `devices` is null. `nodes` is the number of nodes with which the pods fit without other changes. If `floor_mib` is
    not null, the pool's floor must then also be lowered to `floor_mib`.
    """

    pool: str
    never: str
    seat: str | None
    promises: FitPart | None
    devices: FitPart | None
    nodes: int | None
    floor_mib: int | None

    @property
    def fits(self) -> bool:
        """Returns True if the new pods fit without a change."""
        return not self.never and all(part is None or part.fits for part in (self.promises, self.devices))


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The report.

    `patch` is a change of the stack file, and the policy pack accepts this change. If `patch` is None, `refusals` has
    the reasons.
    """

    mib: int
    gpu_count: int
    replicas: int
    tenant: str | None
    fits: bool
    pools: tuple[FitPool, ...]
    stack: str | None = None
    patch: str | None = None
    refusals: tuple[str, ...] = ()
    unknown: tuple[str, ...]


def fit(
    ledger: Ledger, cluster: ClusterSnapshot | None, wanted: Wanted, pool: str | None = None, tenant: str | None = None
) -> Fit:
    """Judges every pool that shares memory, or only the named pool.

    The pool that needs the smallest change comes first in the result. Raises PoolError.
    """
    shared = [each.name for each in ledger.shared_pools]
    if pool is not None and pool not in shared:
        raise PoolError(f"--pool {pool!r} is no pool that shares memory; these are: {', '.join(shared) or 'none'}")
    gaps = [*cluster.gaps] if cluster else []
    if cluster and not cluster.whole:
        gaps.append("what others hold is not known: only promises are judged")
    pools = [_pool(ledger, cluster, each, wanted, tenant) for each in ledger.shared_pools if pool in (None, each.name)]
    pools.sort(key=_order)
    return Fit(
        mib=wanted.mib,
        gpu_count=wanted.count,
        replicas=wanted.replicas,
        tenant=tenant,
        fits=any(each.fits for each in pools),
        pools=tuple(pools),
        unknown=tuple(gaps),
    )


def _order(found: FitPool) -> tuple[bool, int, int, str]:
    parts = [part for part in (found.promises, found.devices) if part]
    never = bool(found.never) or any(part.changes is None for part in parts)
    return never, sum(part.touched for part in parts), sum(part.mib for part in parts), found.pool


def _pool(ledger: Ledger, cluster: ClusterSnapshot | None, pool: Pool, wanted: Wanted, tenant: str | None) -> FitPool:
    never = obstacle(ledger, pool, wanted)
    seat = _seat_of(ledger, pool, wanted, tenant)
    rows = who(cluster, Filter(pool=pool.name)).nodes if cluster and cluster.whole else None
    used = _used(rows or ())
    nodes = None if never or seat else nodes_needed(ledger, pool, wanted)
    gates = {gate.namespace: gate.name for gate in cluster.gates if gate.pool == pool.name} if cluster else {}
    return FitPool(
        pool=pool.name,
        never=never,
        seat=seat,
        promises=None if never or seat else _part(lower_budgets(ledger, pool, wanted, used), used),
        devices=None if never or rows is None else _part(_on_devices(ledger, gates, rows, wanted, used), used),
        nodes=nodes.nodes if nodes else None,
        floor_mib=nodes.floor_mib if nodes else None,
    )


def _seat_of(ledger: Ledger, pool: Pool, wanted: Wanted, tenant: str | None) -> str | None:
    """Returns the name of a tenant's seat with exactly the wanted MiB.

    Each pod of the seat has the wanted number of devices, or the seat has one replica for each wanted device.
    """
    return next(
        (
            seat.name
            for seat in ledger.seats_of(tenant or "")
            if (seat.pool, seat.gpumem_mib) == (pool.name, wanted.mib)
            and seat.devices_per_pod in (1, wanted.count)
            and seat.devices >= wanted.replicas * wanted.count
        ),
        None,
    )


def _used(rows: Sequence[NodeRow]) -> dict[str, int]:
    """Returns, for each seat, the highest measured use of its pods.

    A seat is left out if the use of one of its pods is unknown.
    """
    used: dict[str, list[int | None]] = {}
    for holder in (pod for node in rows for device in node.devices for pod in device.pods):
        if holder.seat is not None:
            used.setdefault(holder.seat, []).append(holder.used_mib)
    return {seat: max(mib or 0 for mib in all_of) for seat, all_of in used.items() if None not in all_of}


def _part(smallest: SmallestChange | None, used: Mapping[str, int]) -> FitPart:
    if smallest is None:
        return FitPart()
    touched, mib = smallest.cost
    return FitPart(
        fits=not smallest.changes,
        changes=tuple(FitChange(**vars(change), used_mib=used.get(change.workload)) for change in smallest.changes),
        touched=touched,
        mib=mib,
        proven=smallest.proven,
        least_touched=smallest.least[0],
        least_mib=smallest.least[1],
        places=smallest.places,
    )


def _on_devices(
    ledger: Ledger,
    gates: Mapping[str, str],
    rows: Sequence[NodeRow],
    wanted: Wanted,
    used: Mapping[str, int],
) -> SmallestChange | None:
    """Returns the smallest change for the pods that are on the pool's devices now.

    `gates` has the name of the on-demand workload of each namespace.
    """
    spread = Counter(pod.uid for node in rows for device in node.devices for pod in device.pods)
    seats = {seat.name: seat for seat in ledger.seats}
    sizes = {name: seat.gpumem_mib for name, seat in seats.items()}
    devices: list[DeviceRoom] = []
    pods: list[PlacedPod] = []
    for node in rows:
        for row in node.devices:
            lying = [*_lying(row, len(devices), gates, spread, sizes)]
            pods += lying
            parked = sum(pod.mib for pod in lying if pod.parks)
            is_open = row.healthy and not row.excluded and node.unusable is None
            name = f"{node.node}, gpu {row.index}"
            devices.append(
                DeviceRoom(node=node.node, name=name, room_mib=row.offered_mib - row.held_mib - parked, open=is_open)
            )
    budgets = {
        seat.name: Budget(
            mib=seat.gpumem_mib,
            least_mib=min(max(used.get(seat.name, 1), 1), seat.gpumem_mib),
            replicas=seat.devices,
        )
        for seat in seats.values()
    }
    return rearrange(devices, pods, budgets, wanted)


def _lying(
    row: DeviceRow, device: int, gates: Mapping[str, str], spread: Mapping[str, int], sizes: Mapping[str, int]
) -> Iterator[PlacedPod]:
    """Yields the pods on a device.

    For an on-demand workload, only its use of memory that is free by the ledger counts.
    """
    on_demand = []
    for pod in row.pods:
        if pod.declared_mib:
            is_seat = pod.seat is not None and spread[pod.uid] == 1 and pod.state != "terminating"
            is_whole = is_seat and sizes.get(pod.seat or "") == pod.declared_mib
            yield PlacedPod(
                name=f"{pod.namespace}/{pod.name}",
                device=device,
                mib=pod.declared_mib,
                seat=pod.seat if is_whole else None,
                movable=is_seat,
            )
        elif pod.state == "unbudgeted" and pod.namespace in gates and pod.used_mib:
            on_demand.append(pod)
    lack = _lack(row)
    for pod in sorted(on_demand, key=lambda pod: (-(pod.used_mib or 0), pod.name)):
        taken = min(pod.used_mib or 0, lack)
        lack -= taken
        if taken:
            yield PlacedPod(name=gates[pod.namespace], device=device, mib=taken, movable=False, parks=True)


def _lack(row: DeviceRow) -> int:
    """Returns the MiB of a device that are free by the ledger but in use.

    Overshoot does not count, because the watchdog recycles pods with an overshoot.
    """
    if row.measured_free_mib is None:
        return 0
    over = sum(_over(pod) for pod in row.pods)
    return max(row.room_mib - max(row.measured_free_mib - row.floor_mib + over, 0), 0)


def _over(pod: Holder) -> int:
    return (pod.over_mib or 0) if pod.declared_mib else 0
