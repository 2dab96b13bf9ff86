"""Rules over the ledger alone: promises against what the devices hold."""

from collections import Counter
from collections.abc import Iterator, Sequence

from policy.finding import Finding, each
from policy.graph import Graph
from policy.objects import Object
from tenancy import names, reach
from tenancy.devices.placement import Bin, Impossible, Item, Placement, fits_alike, place
from tenancy.full_seats import FullSeats, full_seats
from tenancy.ledger import Ledger, Pool, SeveralPoolsError, Sharing
from tenancy.quantity import whole
from tenancy.workload import at, given, pod_template

_MOST_PLACED = 4000  # seats of a pool for which orders are tried
_MOST_NAMED = 8  # seats that a message names, of those that contradict one another
_SHOWN = 2  # promises that a message names; the largest come first


def readable(graph: Graph) -> Iterator[Finding]:
    """The ledger can be read, and who reaches a GPU has one."""
    yield from graph.ledger_problems
    if graph.ledger is None and not graph.ledger_problems:
        asking = {id(claim.workload) for claim in graph.claims}
        yield from (_no_ledger(claim.workload) for claim in graph.claims)
        yield from each((o for o in graph.workloads if id(o) not in asking), _reaches_unbudgeted)


def _reaches_unbudgeted(workload: Object) -> Iterator[Finding]:
    if any(reach.routes(at(pod_template(workload.manifest) or {}, "spec"), names.Names(""))):
        yield _no_ledger(workload)


def _no_ledger(workload: Object) -> Finding:
    return Finding(
        f"{workload}: cannot be proven: no ledger; write `pulumi stack output --json ledger` of the platform to a "
        "file and pass it as --policy-pack-config",
        workload.urn,
    )


def budgets(graph: Graph) -> Iterator[Finding]:
    """The promises on a pool sum to no more than it advertises."""
    ledger = graph.ledger
    if ledger is None:
        return
    for pool in ledger.pools:
        promised, advertised = ledger.promised_mib(pool.name), pool.advertised_mib
        if pool.sharing is Sharing.MEMORY and promised > advertised:
            yield _finding(
                graph,
                f"{pool.name}: {promised} MiB promised, {advertised} advertised ({promised - advertised} over): "
                f"{_largest(ledger, pool.name)}; lower a budget or raise pools.{pool.name}",
            )


def _largest(ledger: Ledger, pool: str) -> str:
    promises = [(seat.name, seat.total_mib) for seat in ledger.seats_in(pool)]
    promises += [(q.queue, q.nominal) for q in ledger.quotas if q.pool == pool and q.resource == ledger.names.gpumem]
    promises.sort(key=lambda promise: -promise[1])
    shown = [f"{name} {mib}" for name, mib in promises[:_SHOWN]]
    return ", ".join([*shown, "…"] if len(promises) > _SHOWN else shown)


def references(graph: Graph) -> Iterator[Finding]:
    """Every promise names a pool of the ledger that can keep it, and is for at least 1."""
    ledger = graph.ledger
    if ledger is None:
        return
    for seat in ledger.seats:
        if min(seat.gpumem_mib, seat.replicas) < 1:
            yield _finding(graph, f"residents.{seat.name}: {seat.gpumem_mib} MiB x {seat.replicas} is no seat")
    promises = [
        *((f"residents.{s.name}", s.pool, True) for s in ledger.seats),
        *((f"on_demand.{o.name}", o.pool, True) for o in ledger.on_demand),
        *((f"unbudgeted.{u.name}", u.pool, True) for u in ledger.unbudgeted),
        *((f"queues.cluster_queues.{q.queue}", q.pool, q.resource == ledger.names.gpumem) for q in ledger.quotas),
    ]
    for key, name, needs_memory in promises:
        pool = ledger.pool(name)
        if pool is None:
            yield _finding(graph, f"{key}: there is no pool {name}; add pools.{name} or name another")
        elif needs_memory and pool.sharing is not Sharing.MEMORY:
            yield _finding(graph, f"{key}: pool {name} hands out whole devices; name one that shares memory")


def physical(graph: Graph) -> Iterator[Finding]:
    """A pool advertises no more than its devices' memory less the reserve, nor than Nodes in the graph show."""
    ledger = graph.ledger
    if ledger is None:
        return
    for pool in ledger.pools:
        yield from _pool_numbers(graph, pool)
    yield from each(graph.of("Node"), lambda node: _node(ledger, node))


def _pool_numbers(graph: Graph, pool: Pool) -> Iterator[Finding]:
    if min(pool.nodes, pool.device_count) < 1:
        yield _finding(graph, f"pools.{pool.name}: {pool.nodes} nodes x {pool.device_count} devices is no pool")
    if pool.sharing is not Sharing.MEMORY:
        return
    if not 0 <= pool.reserve_mib < pool.memory_mib:
        yield _finding(
            graph,
            f"{pool.name}: a device has {pool.memory_mib} MiB and {pool.reserve_mib} of them reserved, which leaves "
            f"{pool.memory_mib - pool.reserve_mib} to advertise; change pools.{pool.name}.reserve_mib",
        )
    elif not 0 <= pool.floor_mib < pool.device_mib:
        yield _finding(
            graph,
            f"{pool.name}: floor {pool.floor_mib} MiB, but a device offers {pool.device_mib}: it would be pressed when "
            f"empty; lower pools.{pool.name}.floor_mib",
        )


def _node(ledger: Ledger, node: Object) -> Iterator[Finding]:
    try:
        pool = ledger.pool_of(node.labels)
    except SeveralPoolsError as error:
        yield Finding(f"{node}: {error}", node.urn)
        return
    if pool is None:
        return
    shown = {
        "memory_mib": (names.LABEL_GPU_MEMORY, pool.memory_mib),
        "device_count": (names.LABEL_GPU_COUNT, pool.device_count),
    }
    for key, (label, wanted) in shown.items():
        has = whole(given(node.labels, label, wanted))
        if has < wanted:
            yield Finding(f"{node}: {label} says {has}, pools.{pool.name}.{key} {wanted}; lower it", node.urn)
    for field in ("capacity", "allocatable"):
        advertised = whole(given(at(node.manifest, "status", field), ledger.names.gpumem, 0))
        if advertised > pool.node_mib:
            yield Finding(
                f"{node}: status.{field} advertises {advertised} MiB, pools.{pool.name} offers {pool.node_mib} a node; "
                "remove it: reconcile advertises",
                node.urn,
            )


def full_pools(graph: Graph) -> Iterator[Finding]:
    """With every seat full, a device has room for its driver, for what has no seat, and for the floor."""
    ledger = graph.ledger
    if ledger is None:
        return
    for pool in ledger.shared_pools:
        if not 0 <= pool.reserve_mib < pool.memory_mib:
            continue  # said by the rule on the pool's numbers
        full = full_seats(ledger, pool)
        if full.reserve_short_mib > 0:
            yield _finding(graph, _short(full))
        said_otherwise = pool.floor_mib >= pool.device_mib or ledger.promised_mib(pool.name) > pool.advertised_mib
        if full.over_mib > 0 and not said_otherwise:
            yield _finding(graph, _over(full))


def _short(full: FullSeats) -> str:
    pool = full.pool
    return (
        f"{pool.name}: a reserve of {pool.reserve_mib} MiB for {full.beside_mib}: {pool.driver_reserved_mib} of the "
        f"driver and {full.unbudgeted_mib} of workloads without a budget, which may all run on one device "
        f"({full.reserve_short_mib} short); raise pools.{pool.name}.reserve_mib, or have a workload of unbudgeted take "
        "a seat"
    )


def _over(full: FullSeats) -> str:
    pool, most = full.pool, full.promised_mib
    return (
        f"{pool.name}: a device may have {most} MiB promised, and its floor is {pool.floor_mib}: "
        f"{most + pool.floor_mib} of {pool.memory_mib} ({full.over_mib} over), so it would be pressed with nobody over "
        f"budget; lower pools.{pool.name}.floor_mib to {pool.memory_mib - most}, or a budget"
    )


def placement(graph: Graph) -> Iterator[Finding]:
    """All seats of a pool fit on its devices at once, each seat on one device."""
    ledger = graph.ledger
    if ledger is None:
        return
    for pool in ledger.pools:
        seats = [seat for seat in ledger.seats_in(pool.name) if seat.gpumem_mib > 0]
        fits_in_sum = sum(seat.total_mib for seat in seats) <= pool.advertised_mib
        if not seats or not fits_in_sum or max(seat.gpumem_mib for seat in seats) > pool.device_mib:
            continue  # said by the rules on budgets and on single devices
        sizes: Counter[int] = Counter()
        for seat in seats:
            sizes[seat.gpumem_mib] += max(seat.replicas, 0)
        if fits_alike(sizes, pool.device_mib, pool.gpus):
            continue
        if sizes.total() > _MOST_PLACED:
            yield _finding(
                graph,
                f"{pool.name}: cannot be proven: {sizes.total()} seats on {pool.gpus} devices: the tightest device for "
                f"each in turn is not enough, and orders are tried for {_MOST_PLACED} at most; leave more headroom in "
                f"pools.{pool.name}",
            )
            continue
        items = [Item(seat.name, seat.gpumem_mib) for seat in seats for _ in range(seat.replicas)]
        # Devices are alike, so no more of them than seats are looked at.
        count = min(pool.gpus, len(items))
        outcome = place(items, [Bin(f"{pool.name}-{index}", pool.device_mib) for index in range(count)])
        if isinstance(outcome, Impossible):
            seats_text = _counted(outcome.items)
            yield _finding(
                graph,
                f"{pool.name}: the seats do not fit on {pool.gpus} devices of {pool.device_mib} MiB: {seats_text}: "
                f"{outcome.reason}; lower one of these budgets or raise pools.{pool.name}",
            )
        elif not isinstance(outcome, Placement):
            yield _finding(
                graph,
                f"{pool.name}: cannot be proven: {len(items)} seats on {pool.gpus} devices: no placement found in "
                f"{outcome.steps} steps, and no contradiction; leave more headroom in pools.{pool.name}",
            )


def _counted(items: Sequence[Item]) -> str:
    """For instance `llama-swap 7000, frigate 2000 x 3`, the first few."""
    counts = Counter(items)
    shown = [f"{i.name} {i.mib}{f' x {n}' if n > 1 else ''}" for i, n in list(counts.items())[:_MOST_NAMED]]
    more = len(counts) - len(shown)
    return ", ".join([*shown, f"and {more} more"] if more else shown)


def seats_on_a_device(graph: Graph) -> Iterator[Finding]:
    """No seat is larger than one device of its pool."""
    ledger = graph.ledger
    if ledger is None:
        return
    for seat in ledger.seats:
        pool = ledger.pool(seat.pool)
        if pool is not None and pool.sharing is Sharing.MEMORY and seat.gpumem_mib > pool.device_mib:
            yield _finding(
                graph,
                f"{seat.name}: {seat.gpumem_mib} MiB a replica, a device of {pool.name} offers {pool.device_mib}; "
                f"lower residents.{seat.name}.gpumem_mib",
            )


def _finding(graph: Graph, message: str) -> Finding:
    return Finding(message, graph.ledger_objects[0].urn if graph.ledger_objects else None)
