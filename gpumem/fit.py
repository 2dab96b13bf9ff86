"""fit: finds the place of new pods, or the smallest change that makes room, in the ledger and on the devices. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpumem.cluster import ClusterSnapshot
from gpumem.who import DeviceRow, Filter, Holder, NodeRow, PoolError, who
from tenancy.fit.layout import Budget, DeviceRoom, PlacedPod
from tenancy.fit.lower import lower, nodes_needed, obstacle
from tenancy.fit.rearrange import rearrange
from tenancy.fit.smallest_change import Change, SmallestChange, Wanted
from tenancy.ledger import Ledger, Pool


@dataclass(frozen=True, kw_only=True)
class FitChange(Change):
    """A change of a workload. `used_mib` is the seat's measured use. If it is missing, a lower budget is a guess."""

    used_mib: int | None


@dataclass(frozen=True, kw_only=True)
class FitPart:
    """The answer of the ledger, or of the devices. `fits` is true if nothing has to change.

    `changes` are the smallest found that make room, null if none do; `touched` and `mib` count them. If not `proven`,
    the search ended early, and at least `least_touched` changes are needed. `places` are the devices of the new pods.
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
    """The answer of a pool. `never` is the reason why even an empty device is too small, else "".

    With a `seat` of just that size nothing new is promised, and `promises` is null. `devices` is null without a
    cluster. With `nodes` nodes, and with the floor `floor_mib` if not null, the pods fit without other changes.
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
        """Returns True if nothing has to change."""
        return not self.never and all(part is None or part.fits for part in (self.promises, self.devices))


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The report. `patch` is the change of the stack file, accepted by the policy pack; else `refusals` has the
    reasons."""

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
    """Judges every pool that shares memory, or one; the best comes first. Raises PoolError."""
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
        promises=None if never or seat else _part(lower(ledger, pool, wanted, used), used),
        devices=None if never or rows is None else _part(_on_devices(ledger, gates, rows, wanted, used), used),
        nodes=nodes.nodes if nodes else None,
        floor_mib=nodes.floor_mib if nodes else None,
    )


def _seat_of(ledger: Ledger, pool: Pool, wanted: Wanted, tenant: str | None) -> str | None:
    """Returns the tenant's seat of exactly that size, with as many devices for each pod, or with a replica for each
    new device."""
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
    """Returns the highest use of a pod by seat, for seats with known use."""
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
    """The smallest change for the pods on a pool's devices now. `gates` are the on-demand workloads by namespace."""
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
    """Returns the pods on a device. An on-demand workload counts only as far as its use keeps new pods out of what the
    ledger has free."""
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
    """The MiB that the ledger has left on a device, but that are in use. Overshoot is left out: it is recycled."""
    if row.measured_free_mib is None:
        return 0
    over = sum(_over(pod) for pod in row.pods)
    return max(row.room_mib - max(row.measured_free_mib - row.floor_mib + over, 0), 0)


def _over(pod: Holder) -> int:
    return (pod.over_mib or 0) if pod.declared_mib else 0
