"""fit: where new pods fit, and the least change after which they do: of what is promised, and on the devices. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpumem.cluster import ClusterSnapshot
from gpumem.who import DeviceRow, Filter, Holder, NodeRow, PoolError, who
from tenancy.fit.lower import lower, nodes_needed, obstacle
from tenancy.fit.plan import Change, Plan, Wanted
from tenancy.fit.rearrange import Budget, DeviceRoom, Lying, rearrange
from tenancy.ledger import Ledger, Pool


@dataclass(frozen=True, kw_only=True)
class FitChange:
    """One workload touched: `lower` a seat's MiB (each replica's), `move` a pod (one restart), `park` an on-demand
    workload. `used_mib` is what is measured of a seat now, None where nobody knows: then a lower number is a guess."""

    kind: str
    workload: str
    from_mib: int | None
    to_mib: int | None
    replicas: int
    used_mib: int | None
    source: str | None
    target: str | None


@dataclass(frozen=True, kw_only=True)
class FitPart:
    """`fits`: as it is. `changes` are the least after which it fits, null where none of these does; `touched` and `mib`
    count them. Not `proven`: the search ended before, and fewer than `least_touched` cannot do. `places` are the
    devices of each new replica."""

    fits: bool
    changes: tuple[FitChange, ...] | None
    touched: int
    mib: int
    proven: bool
    least_touched: int
    least_mib: int
    places: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class FitPool:
    """`never` is why it fits no device of the pool, however empty; else "". `seat` is the tenant's of just that size:
    then `promises` is null, as nothing new is promised. `devices` is null without a cluster. With `nodes` in the pool,
    and its floor at `floor_mib` where that is not null, it fits as everything else is; null where no number does."""

    pool: str
    never: str
    seat: str | None
    promises: FitPart | None
    devices: FitPart | None
    nodes: int | None
    floor_mib: int | None

    @property
    def fits(self) -> bool:
        """As everything is."""
        return not self.never and all(part is None or part.fits for part in (self.promises, self.devices))


@dataclass(frozen=True, kw_only=True)
class Fit:
    """`patch` is what to write into `stack`'s file, which the gate's rules passed; else `refusals` say why not."""

    mib: int
    gpu_count: int
    replicas: int
    tenant: str | None
    fits: bool
    pools: tuple[FitPool, ...]
    stack: str | None
    patch: str | None
    refusals: tuple[str, ...]
    unknown: tuple[str, ...]


def fit(
    ledger: Ledger, cluster: ClusterSnapshot | None, wanted: Wanted, pool: str | None = None, tenant: str | None = None
) -> Fit:
    """In every pool that shares memory, or one: the best first. Raises PoolError."""
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
        stack=None,
        patch=None,
        refusals=(),
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
    """The tenant's seat of just that size, with replicas for all."""
    return next(
        (
            seat.name
            for seat in ledger.seats_of(tenant or "")
            if (seat.pool, seat.gpumem_mib) == (pool.name, wanted.mib)
            and seat.replicas >= wanted.replicas * wanted.count
        ),
        None,
    )


def _used(rows: Sequence[NodeRow]) -> dict[str, int]:
    """The most that any pod of a seat uses, of the seats of which all is known."""
    used: dict[str, list[int | None]] = {}
    for holder in (pod for node in rows for device in node.devices for pod in device.pods):
        if holder.seat is not None:
            used.setdefault(holder.seat, []).append(holder.used_mib)
    return {seat: max(mib or 0 for mib in all_of) for seat, all_of in used.items() if None not in all_of}


def _part(plan: Plan | None, used: Mapping[str, int]) -> FitPart:
    if plan is None:
        return FitPart(
            fits=False, changes=None, touched=0, mib=0, proven=False, least_touched=0, least_mib=0, places=()
        )
    touched, mib = plan.cost
    return FitPart(
        fits=not plan.changes,
        changes=tuple(_change(change, used) for change in plan.changes),
        touched=touched,
        mib=mib,
        proven=plan.proven,
        least_touched=plan.least[0],
        least_mib=plan.least[1],
        places=plan.places,
    )


def _change(change: Change, used: Mapping[str, int]) -> FitChange:
    return FitChange(
        kind=change.kind.value,
        workload=change.workload,
        from_mib=change.from_mib,
        to_mib=change.to_mib,
        replicas=change.replicas,
        used_mib=used.get(change.workload),
        source=change.source,
        target=change.target,
    )


def _on_devices(
    ledger: Ledger,
    gates: Mapping[str, str],
    rows: Sequence[NodeRow],
    wanted: Wanted,
    used: Mapping[str, int],
) -> Plan | None:
    """Of what lies on a pool's devices now, with the `gates` of its on-demand workloads by namespace."""
    spread = Counter(pod.uid for node in rows for device in node.devices for pod in device.pods)
    seats = {seat.name: seat for seat in ledger.seats}
    sizes = {name: seat.gpumem_mib for name, seat in seats.items()}
    devices: list[DeviceRoom] = []
    pods: list[Lying] = []
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
            replicas=seat.replicas,
        )
        for seat in seats.values()
    }
    return rearrange(devices, pods, budgets, wanted)


def _lying(
    row: DeviceRow, device: int, gates: Mapping[str, str], spread: Mapping[str, int], sizes: Mapping[str, int]
) -> Iterator[Lying]:
    """Who lies on a device. On-demand workloads hold what the ledger has room for and could not be loaded now."""
    on_demand = []
    for pod in row.pods:
        if pod.declared_mib:
            is_seat = pod.seat is not None and spread[pod.uid] == 1 and pod.state != "terminating"
            is_whole = is_seat and sizes.get(pod.seat or "") == pod.declared_mib
            yield Lying(
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
            yield Lying(name=gates[pod.namespace], device=device, mib=taken, movable=False, parks=True)


def _lack(row: DeviceRow) -> int:
    """What the ledger has left of a device and cannot be loaded now; what pods are over their budgets comes back."""
    if row.measured_free_mib is None:
        return 0
    over = sum(_over(pod) for pod in row.pods)
    return max(row.room_mib - max(row.measured_free_mib - row.floor_mib + over, 0), 0)


def _over(pod: Holder) -> int:
    return (pod.over_mib or 0) if pod.declared_mib else 0


def with_stack(found: Fit, stack: str, patch: str | None, refusals: tuple[str, ...]) -> Fit:
    """The same, with what to write into a stack's file."""
    return replace(found, stack=stack, patch=patch, refusals=refusals)
