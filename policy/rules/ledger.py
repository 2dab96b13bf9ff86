"""Rules on the ledger, which compare the promises with the memory of the devices."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from policy.finding import Finding, first_items, judge_each
from policy.graph import Graph
from policy.objects import Object
from policy.rule import Example, an_object, rule
from tenancy import names, reach, shares, sums
from tenancy.devices.placement import Impossible, Item, Placement
from tenancy.devices.spread import AlikeNodes, fits_on_separate_nodes, place_on_nodes
from tenancy.ledger import GATE_MARGIN_MIB, Ledger, Pool, Seat, SeveralPoolsError
from tenancy.quantity import whole
from tenancy.workload import map_at, pod_template, value_or

_MOST_PLACED = 50_000  # If a pool has more seats than this number, the rule does not search for a placement.
_MOST_NAMED = 8  # A message names at most this many seats.


_NODE = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
_TWO_DEVICES = {"pools.t4.device_count": 2, "pools.t4.floor_mib": 1}
_BIG = {"tenant": "immich", "pool": "t4"}


@rule(
    "ledger",
    Example(
        of=an_object("v1", "ConfigMap", names.LEDGER, "other", data={}),
        instead="Remove the ledger: only the platform declares a ledger. Other programs get the ledger as "
        "configuration.",
    ),
)
def readable(graph: Graph) -> Iterator[Finding]:
    """The policy pack can read the ledger. Workloads of the program reach a GPU only if the policy pack has a
    ledger."""
    yield from graph.ledger_problems
    if graph.ledger is None and not graph.ledger_problems:
        asking = {id(request.workload) for request in graph.requests}
        yield from (_no_ledger(request.workload) for request in graph.requests)
        yield from judge_each((o for o in graph.workloads if id(o) not in asking), _reaches_unbudgeted)


def _reaches_unbudgeted(workload: Object) -> Iterator[Finding]:
    if any(reach.routes(map_at(pod_template(workload.manifest) or {}, "spec"), names.Names(""))):
        yield _no_ledger(workload)


def _no_ledger(workload: Object) -> Finding:
    return Finding(
        f"{workload}: cannot be proven: no ledger; write `pulumi stack output --json ledger` of the platform to a "
        "file and pass it as --policy-pack-config",
        workload.urn,
    )


@rule("budgets", Example("residents.llama-swap.gpumem_mib", 7000, 5000))
def budgets(graph: Graph) -> Iterator[Finding]:
    """The sum of all promises on a pool is at most the pool's advertised memory."""
    yield from _said(graph, sums.budgets)


def _said(graph: Graph, lines: Callable[[Ledger], Iterable[str]]) -> Iterator[Finding]:
    if graph.ledger is not None:
        yield from (_finding(graph, line) for line in lines(graph.ledger))


@rule(
    "physical",
    Example("pools.t4.floor_mib", 14000, 1536),
    Example(
        "metadata.labels",
        _NODE | {names.LABEL_GPU_MEMORY: "15000"},
        _NODE | {names.LABEL_GPU_MEMORY: "15360"},
        of=an_object("v1", "Node", "k8s-node1"),
    ),
)
def physical(graph: Graph) -> Iterator[Finding]:
    """A pool advertises at most the memory of its devices minus the reserve. A pool declares at most the devices and
    the memory that the Nodes in the graph show."""
    ledger = graph.ledger
    if ledger is None:
        return
    yield from _said(graph, sums.pool_numbers)
    yield from judge_each(graph.of("Node"), lambda node: _node(ledger, node))


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
        has = whole(value_or(node.labels, label, wanted))
        if has < wanted:
            where = f"pools.{pool.name}.{key}"
            fix = f"lower {where} to {has}" if has > 0 else f"take its labels of pools.{pool.name} away"
            yield Finding(f"{node}: {label} says {has}, {where} {wanted}; {fix}", node.urn)
    for field in ("capacity", "allocatable"):
        advertised = whole(value_or(map_at(node.manifest, "status", field), ledger.names.gpumem, 0))
        if advertised > pool.node_mib:
            yield Finding(
                f"{node}: status.{field} advertises {advertised} MiB, pools.{pool.name} offers {pool.node_mib} a node; "
                "remove it: reconcile advertises",
                node.urn,
            )


@rule("full-seats", Example("unbudgeted.android-emulator.measured_mib", 911, 910))
def full_pools(graph: Graph) -> Iterator[Finding]:
    """If every pod with a seat uses its whole budget, each device still has its floor, without the driver and the
    unbudgeted workloads. The pool's reserve covers the driver and the unbudgeted workloads."""
    yield from _said(graph, sums.full_pools)


@rule(
    "placement",
    Example("residents.big.replicas", 2, 1, given=_TWO_DEVICES | {"residents.big": _BIG | {"gpumem_mib": 7300}}),
)
def placement(graph: Graph) -> Iterator[Finding]:
    """All seats of a pool fit on its devices at the same time. Each pod is on one device, or on several devices of one
    node."""
    ledger = graph.ledger
    if ledger is None:
        return
    for pool in ledger.pools:
        seats = [seat for seat in ledger.seats_in(pool.name) if seat.gpumem_mib > 0]
        fits_in_sum = sum(seat.total_mib for seat in seats) <= pool.advertised_mib
        if not seats or not fits_in_sum or any(_is_too_large(seat, pool) for seat in seats):
            continue  # The rules `budgets` and `seat-size` report a pool with too many promises or too large seats.
        requests: Counter[tuple[int, int]] = Counter()
        for seat in seats:
            requests[seat.gpumem_mib, seat.devices_per_pod] += max(seat.replicas, 0)
        alike = AlikeNodes(nodes=pool.nodes, device_count=pool.device_count, device_mib=pool.device_mib)
        if fits_on_separate_nodes(requests, alike):
            continue
        outcome: Placement | Impossible | None = None
        if requests.total() <= _MOST_PLACED:
            items = [Item(s.name, s.gpumem_mib, s.devices_per_pod) for s in seats for _ in range(s.replicas)]
            outcome = place_on_nodes(items, alike.needed(items))
        if isinstance(outcome, Impossible):
            yield _finding(
                graph,
                f"{pool.name}: the seats do not fit on {pool.gpus} devices of {pool.device_mib} MiB: "
                f"{_counted(outcome.items)}: {outcome.reason}; lower one of these budgets{pool.or_raise}",
            )
        elif outcome is None:
            yield _finding(
                graph,
                f"{pool.name}: cannot be proven: {requests.total()} seats on {pool.gpus} devices: no placement found, "
                f"and no contradiction; leave more headroom in pools.{pool.name}",
            )


def _is_too_large(seat: Seat, pool: Pool) -> bool:
    return seat.gpumem_mib > pool.device_mib or seat.devices_per_pod > pool.device_count


def _counted(items: Sequence[Item]) -> str:
    """Formats the first items with their sizes. For one item and three equal items, the text is `llama-swap 7000,
    frigate 2000 x 3`."""
    counts = Counter(items)
    return first_items([f"{i.name} {i.amount}{f' x {n}' if n > 1 else ''}" for i, n in counts.items()], _MOST_NAMED)


@rule("seat-size", Example("residents.big.gpumem_mib", 14100, 100, given=_TWO_DEVICES | {"residents.big": _BIG}))
def seats_on_a_device(graph: Graph) -> Iterator[Finding]:
    """No seat has more MiB than a device of its pool, or more devices than a node of its pool."""
    yield from _said(graph, sums.seat_sizes)


@rule("node-shares", Example("residents.llama-swap.cpus", 14, 7, given={"pools.t4.cpus": 16}))
def node_shares(graph: Graph) -> Iterator[Finding]:
    """The pods of all seats of a pool together may request no more CPUs and no more host memory than the pool's nodes
    have. A pool without `cpus` or `host_memory_mib` bounds nothing."""
    yield from _said(graph, shares.overdrawn)


@rule("on-demand", Example("on_demand.tts.need_mib", 14_000, 2048))
def on_demand(graph: Graph) -> Iterator[Finding]:
    """Each on-demand workload fits above the floor of an unused device of its pool. The demand gate would never start a
    workload that needs more memory."""
    yield from _said(graph, _gates_that_stay_shut)


def _gates_that_stay_shut(ledger: Ledger) -> Iterator[str]:
    for workload in ledger.on_demand:
        pool = ledger.pool(workload.pool)
        if pool is None or pool.floor_mib >= pool.device_mib:
            continue  # The rule `physical` reports a pool with a floor above its device.
        most = pool.device_mib - pool.floor_mib - GATE_MARGIN_MIB
        if workload.need_mib > most:
            yield (
                f"{workload.name}: needs {workload.need_mib} MiB above the floor of {pool.floor_mib} and the margin of "
                f"{GATE_MARGIN_MIB}, a device of {pool.name} offers {pool.device_mib}: its gate would never open; "
                f"lower on_demand.{workload.name}{f'.need_mib to {most}' if most > 0 else ''}"
            )


def _finding(graph: Graph, message: str) -> Finding:
    return Finding(message, graph.ledger_objects[0].urn if graph.ledger_objects else None)
