"""Implements `kubectl gpumem fit`: finds devices for new pods, or the smallest change after which the pods fit.

Judges the ledger's promises and the pods on the devices separately. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpumem.cluster import ClusterSnapshot
from gpumem.rows import DeviceRow, Holder, NodeRow
from gpumem.who import Filter, UnknownNameError, who
from tenancy.fit.layout import Budget, DeviceRoom, PlacedPod
from tenancy.fit.lower import lower_budgets, nodes_needed, obstacle
from tenancy.fit.rearrange import rearrange
from tenancy.fit.smallest_change import GRID_MIB, WORK, Change, SmallestChange, Wanted, least_mib
from tenancy.ledger import Ledger, Pool, Seat, Tenant

_MOST_TOUCHED = 2  # Nobody changes more workloads at once in order to place one more.


@dataclass(frozen=True, kw_only=True)
class FitChange(Change):
    """A change of a workload, with the measured use of the workload's pods.

    If `used_mib` is None, the pods of the seat may need more than the lowered budget.
    """

    used_mib: int | None


@dataclass(frozen=True, kw_only=True)
class FitPart:
    """The result of a search: among the ledger's promises, or among the pods on the devices.

    `fits` is true if the new pods fit without a change. `changes` has the smallest known changes after which the new
    pods fit, or null if the search found none, or only of more than two workloads. `touched` is the number of changed
    workloads. `mib` is the sum of MiB by
    which promises are lowered. If `proven` is false, the search ended early: a smaller change can exist, or any change
    if `changes` is null. At least `least_touched` workloads must change. `places` has the devices of each new pod.
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

    If the tenant already has a free seat of exactly this size, `seat` is the name of this seat, and `promises` is null.
    `taken` is the reason why the new pods need a new promise: pods take this seat, or the tenant's quota has too little
    left. Otherwise, `taken` is "". `missing` is the number of devices that `nodes` adds to the pool.
    Without a cluster, and if the devices of a node are not known, `devices` is null. If the pool had `nodes` nodes, the
    pods would fit without other changes.
    """

    pool: str
    never: str
    seat: str | None
    taken: str
    promises: FitPart | None
    devices: FitPart | None
    missing: int | None
    nodes: int | None

    @property
    def fits(self) -> bool:
        """Returns True if the new pods fit without a change."""
        return (
            not self.never
            and not self.taken
            and all(part is None or part.fits for part in (self.promises, self.devices))
        )


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The report.

    `patch` is a change of the stack file that the policy pack accepts. If `patch` is None, `refusals` has the reasons.
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

    The pool that needs the smallest change comes first in the result. Raises UnknownNameError.
    """
    shared = [each.name for each in ledger.shared_pools]
    if pool is not None and pool not in shared:
        raise UnknownNameError(
            f"--pool {pool!r} is no pool that shares memory; these are: {', '.join(shared) or 'none'}"
        )
    gaps = [*cluster.gaps] if cluster else []
    if cluster is None and tenant and ledger.seats_of(tenant):
        gaps.append(f"the pods that take the seats of {tenant}: read the cluster with --live")
    if cluster and tenant and cluster.own not in (None, tenant):
        gaps.append(f"the pods that take the seats of {tenant}: only those of {cluster.own} may be read")
    if cluster and not cluster.whole:
        gaps.append("what others hold is not known: only promises are judged")
    if cluster and cluster.whole:
        unread = [row.node for row in who(cluster).nodes if not row.devices and not row.unusable]
        gaps += [f"the devices of {name}: only the promises of its pool are judged" for name in unread]
    judged = [each for each in ledger.shared_pools if pool in (None, each.name)]
    pools = sorted(
        (_pool(ledger, cluster, each, wanted, tenant, work=WORK // len(judged)) for each in judged), key=_order
    )
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


def _pool(
    ledger: Ledger, cluster: ClusterSnapshot | None, pool: Pool, wanted: Wanted, tenant: str | None, *, work: int
) -> FitPool:
    never = obstacle(ledger, pool, wanted)
    seats = _seats_of(ledger, pool, wanted, tenant)
    seat, taken = next(iter(seats), None), ""
    if cluster and tenant:
        seat, taken = _free_seat(ledger, cluster, tenant, seats, wanted)
    rows = who(cluster, Filter(pool=pool.name)).nodes if cluster and cluster.whole else None
    if any(not row.devices and not row.unusable for row in rows or ()):
        rows = None  # On a node with unknown devices, there may be a place or none.
    closed = {row.node for row in rows or () if row.unusable}
    used = _used(rows or ())
    least = {each.name: least_mib(each.gpumem_mib, used.get(each.name)) for each in ledger.seats}
    nodes = None if never or seat else nodes_needed(ledger, pool, wanted, work)
    gates = {gate.namespace: gate.name for gate in cluster.gates if gate.pool == pool.name} if cluster else {}
    return FitPool(
        pool=pool.name,
        never=never,
        seat=seat.name if seat else None,
        taken=taken,
        promises=None if never or seat else _part(_promised(ledger, pool, wanted, least, work), used),
        devices=None
        if never or rows is None
        else _part(_on_devices(ledger, gates, rows, closed, wanted, least=least, work=work), used),
        missing=(nodes - pool.nodes) * pool.device_count if nodes else None,
        nodes=nodes,
    )


def _seats_of(ledger: Ledger, pool: Pool, wanted: Wanted, tenant: str | None) -> list[Seat]:
    """Returns a tenant's seats with exactly the wanted MiB.

    Each replica of the seat's resident has the wanted number of devices, or the resident has one replica for each
    wanted device.
    """
    return [
        seat
        for seat in ledger.seats_of(tenant or "")
        if (seat.pool, seat.gpumem_mib) == (pool.name, wanted.mib)
        and seat.devices_per_pod in (1, wanted.count)
        and seat.devices >= wanted.replicas * wanted.count
    ]


def _free_seat(
    ledger: Ledger, cluster: ClusterSnapshot, tenant: str, seats: Sequence[Seat], wanted: Wanted
) -> tuple[Seat | None, str]:
    """Returns the first seat that the tenant's pods leave free. If there is none, or if the quota is used up, returns
    None and the reason.

    A pod takes the seat that its label names. A pod without a label takes a seat of its size that is still free.
    """
    names = ledger.names
    pods = [pod for pod in cluster.pods if pod.namespace == tenant and not pod.ended]
    users: dict[str, list[str]] = {seat.name: [] for seat in seats}
    for pod in sorted(pods, key=lambda pod: not pod.seat_label(names)):
        size = pod.request(names.gpumem), max(pod.request(names.gpu_count), 1)
        named = ledger.seat_named(tenant, pod.seat_label(names))
        alike = [seat for seat in seats if (seat == named if named else size == (seat.pod_mib, seat.devices_per_pod))]
        if alike:
            users[min(alike, key=lambda seat: len(users[seat.name]) >= seat.replicas).name].append(str(pod))
    free = (s for s in seats if (s.replicas - len(users[s.name])) * s.devices_per_pod >= wanted.replicas * wanted.count)
    seat = next(free, None)
    if seats and seat is None:
        return None, "; ".join(f"seat {name} is taken by {', '.join(sorted(users[name]))}" for name in users)
    held_mib, budget_mib = sum(pod.request(names.gpumem) for pod in pods), ledger.budget_mib(tenant)
    observed = ledger.tenants_by_name.get(tenant, Tenant(name="")).observed
    if observed or budget_mib - held_mib >= wanted.total_mib:
        return seat, ""
    return None, f"the quota of {tenant} has {max(budget_mib - held_mib, 0)} of {budget_mib} MiB left"


def _used(rows: Sequence[NodeRow]) -> dict[str, int]:
    """Returns, for each seat, the highest measured use of its pods.

    A seat is left out if the use of one of its pods is unknown.
    """
    used: dict[str, list[int | None]] = {}
    for holder in (pod for node in rows for device in node.devices for pod in device.pods):
        if holder.seat is not None:
            used.setdefault(holder.seat, []).append(holder.used_mib)
    return {seat: max(mib or 0 for mib in all_of) for seat, all_of in used.items() if None not in all_of}


def _promised(ledger: Ledger, pool: Pool, wanted: Wanted, least: Mapping[str, int], work: int) -> SmallestChange:
    """Returns the smallest change of promises, with rounded budgets if all promises fit with them too."""
    found = lower_budgets(ledger, pool, wanted, least, work)
    rounded = [
        replace(each, to_mib=max((each.to_mib or 0) // GRID_MIB * GRID_MIB, least[each.workload]))
        for each in found.changes or ()
    ]
    lowered = ledger.with_budgets({each.workload: each.to_mib or 0 for each in rounded})
    fits = bool(rounded) and lower_budgets(lowered, pool, wanted, {}, work).changes == ()
    return replace(found, changes=tuple(rounded)) if fits else found


def _part(smallest: SmallestChange, used: Mapping[str, int]) -> FitPart:
    touched, mib = smallest.cost
    if smallest.changes is None or touched > _MOST_TOUCHED:
        return FitPart(proven=smallest.proven, touched=touched)
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
    closed: Collection[str],
    wanted: Wanted,
    *,
    least: Mapping[str, int],
    work: int,
) -> SmallestChange:
    """Returns the smallest change for the pods that are on the pool's devices now.

    `gates` has the name of the on-demand workload of each namespace. `closed` has the nodes that take no new pod.
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
            is_free = row.healthy and not row.excluded and node.node not in closed
            name = f"{node.node}, gpu {row.index}"
            room_mib = row.offered_mib - node.unadvertised_mib - row.held_mib - parked
            devices.append(DeviceRoom(node=node.node, name=name, room_mib=room_mib, open=is_free))
    budgets = {
        seat.name: Budget(mib=seat.gpumem_mib, least_mib=least[seat.name], replicas=seat.devices)
        for seat in seats.values()
    }
    return rearrange(devices, pods, budgets, wanted, work)


def _lying(
    row: DeviceRow, device: int, gates: Mapping[str, str], spread: Mapping[str, int], sizes: Mapping[str, int]
) -> Iterator[PlacedPod]:
    """Yields the pods on a device.

    The memory of on-demand workloads is the memory that is free by the ledger but in use.
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

    The function leaves out overshoot, because the watchdog recycles pods with an overshoot.
    """
    if row.measured_free_mib is None:
        return 0
    over = sum(_over(pod) for pod in row.pods)
    return max(row.free_mib - max(row.measured_free_mib - row.floor_mib + over, 0), 0)


def _over(pod: Holder) -> int:
    return (pod.over_mib or 0) if pod.declared_mib else 0
