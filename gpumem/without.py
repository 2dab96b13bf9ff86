"""Implements `kubectl gpumem fit --without`.

Reports if all pods of a node, or of one of its devices, fit on the rest of its pool, and if the pool keeps its promises
without the node or the device.
Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.runtime.errors import AgentError
from gpumem.cluster import ClusterSnapshot
from gpumem.nodes import rules_out
from gpumem.paper import Paper, text_of_lines
from gpumem.pods import WholePod
from gpumem.rows import NodeRow, WholeRow
from gpumem.who import Filter, UnknownNameError, check, who
from tenancy.devices.absent import absent_seats, present_seats, seats_by_tenant
from tenancy.devices.placement import Bin, Impossible, Item, Placement
from tenancy.devices.spread import place_on_nodes
from tenancy.ledger import Ledger
from tenancy.names import GPU, OPERATOR
from tenancy.sums import contradictions

_NOT_JUDGED = "CPU, memory of the host, volumes, affinity to pods and PodDisruptionBudgets: they are not judged"


class NoAnswerError(AgentError):
    """Raised when the question has no answer for this user."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """A pod of the node.

    `gpus` is the number of devices, and `mib` is the amount on each device, or None for whole devices. `target` is a
    place for the pod, or None if the pods do not all fit. `stays` is True for a pod that a drain does not evict.
    """

    namespace: str
    name: str
    mib: int | None
    gpus: int
    target: str | None
    stays: bool


@dataclass(frozen=True, kw_only=True)
class Without:
    """The report.

    `device` is the index of the device that is left out, or None if the whole node is. `fits` is True if all pods fit
    on the rest of the pool, and None if the search had no result. `promises` has a sentence for each promise that needs
    the node or the device.
    """

    node: str
    device: int | None
    pool: str
    fits: bool | None
    why_not: str
    moves: tuple[Move, ...]
    promises: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def fine(self) -> bool:
        return self.fits is True and not self.promises


def without(cluster: ClusterSnapshot, left_out: str) -> Without:
    """Returns the report on a node, or on a device that is written as NODE/INDEX.

    Raises UnknownNameError for an unknown node or device.

    Raises NoAnswerError if the user may not read all pods.
    """
    node, _, index = left_out.partition("/")
    check(cluster, Filter(node=node))
    if not cluster.whole:
        raise NoAnswerError(f"--without needs the right to read all pods: ask for the ClusterRole {OPERATOR}")
    found = who(cluster)
    rows: list[NodeRow | WholeRow] = [*found.nodes, *found.whole]
    mine = next((row for row in rows if row.node == node), None)
    if mine is None or mine.pool is None:
        raise NoAnswerError(f"{node} belongs to no pool of the ledger, or to several pools")
    device, on_device = _device(mine, index) if index else (None, frozenset())
    pods = [
        pod
        for pod in cluster.pods
        if pod.node == node and (device is None or pod.uid in on_device) and not pod.ended and not pod.terminating
    ]
    evicted = {str(pod) for pod in pods if not _stays(pod)}
    shares = isinstance(mine, NodeRow)
    if shares:
        held = cluster.cache.node(node).pods.values()
        ending = {pod.uid for pod in cluster.pods if pod.node == node and pod.terminating}
        items = [
            Item(f"{pod.namespace}/{pod.name}", pod.request.mib, pod.request.count)
            for pod in held
            if pod.uid not in ending and (device is None or pod.uid in on_device)
        ]
        absent = [*_absent(cluster, mine.pool, ending)]
    else:
        items, absent = [Item(str(pod), pod.request(GPU)) for pod in pods if pod.request(GPU)], []
    moved = [each for each in items if each.name in evicted]
    moving = {each.name for each in moved}
    barred = dict(_barred(cluster, mine, rows, [pod for pod in pods if str(pod) in moving]))
    others = [row for row in rows if row.pool == mine.pool and row.node != node and row.node not in barred]
    if device is not None and isinstance(mine, NodeRow) and mine.devices[1:] and not mine.unusable:
        others.insert(0, _rest(mine, device, moving))
    devices = [*map(_devices, others)]
    promises = [*(_promises if device is None else _promises_less_a_device)(cluster.ledger, mine.pool)]
    outcome = place_on_nodes(moved, devices)
    if isinstance(outcome, Placement) and absent:
        both = place_on_nodes([*moved, *absent], devices)
        if isinstance(both, Placement):
            outcome = both
        elif not promises:
            promises.append(_without_room(mine.pool, both, absent))
    targets = _targets(outcome)
    blind = [row.node for row in others if isinstance(row, NodeRow) and not row.devices]
    known = isinstance(outcome, Placement) or (outcome is not None and not blind)
    return Without(
        node=node,
        device=device,
        pool=mine.pool,
        fits=isinstance(outcome, Placement) if known else None,
        why_not=_why_not(outcome, mine.pool, others, barred),
        moves=tuple(
            Move(
                namespace=item.name.partition("/")[0],
                name=item.name.partition("/")[2],
                mib=item.mib if shares else None,
                gpus=item.devices if shares else item.mib,
                target=", ".join(targets[item.name]) if targets.get(item.name) else None,
                stays=item.name not in evicted,
            )
            for item in items
        ),
        promises=tuple(promises),
        unknown=(
            *found.unknown,
            *(f"the devices of {name}" for name in blind),
            *_in_use(others, outcome, moving),
            *_without_budget(mine, moving, evicted),
            _NOT_JUDGED,
        ),
    )


def _device(row: NodeRow | WholeRow, index: str) -> tuple[int, frozenset[str]]:
    """Returns the device's index, and the UIDs of the pods on it. Raises UnknownNameError and NoAnswerError."""
    if isinstance(row, WholeRow):
        raise NoAnswerError(
            f"{row.node} hands out whole devices, and it is not known which pod has which: leave out {row.node}"
        )
    known = {str(each.index): each for each in row.devices}
    if index not in known:
        raise UnknownNameError(f"--without: {row.node} has no gpu {index}; it has: {', '.join(known) or 'none'}")
    return known[index].index, frozenset(pod.uid for pod in known[index].pods)


def _rest(row: NodeRow, device: int, moving: Collection[str]) -> NodeRow:
    """Returns the node without the device. A moving pod leaves its other devices too."""
    rest = []
    for each in row.devices:
        left_mib = sum(pod.declared_mib for pod in each.pods if f"{pod.namespace}/{pod.name}" in moving)
        if each.index != device:
            rest.append(replace(each, free_mib=each.free_mib + left_mib))
    return replace(row, devices=tuple(rest))


def _barred(
    cluster: ClusterSnapshot, mine: NodeRow | WholeRow, rows: Sequence[NodeRow | WholeRow], pods: Sequence[WholePod]
) -> Iterator[tuple[str, str]]:
    """Yields each other node of the pool that does not take all of the pods, with the reason."""
    for row in rows:
        if row.pool == mine.pool and row.node != mine.node:
            reasons = ((rules_out(cluster, pod, row.node), f" ({pod})") for pod in pods)
            found = next((f"{reason}{of}" for reason, of in reasons if reason), None if pods else row.unusable)
            if found:
                yield row.node, found


def _why_not(
    outcome: Placement | Impossible | None, pool: str, others: Sequence[NodeRow | WholeRow], barred: Mapping[str, str]
) -> str:
    if not isinstance(outcome, Impossible):
        return ""
    left_out = "; ".join(f"{node} {why}" for node, why in barred.items())
    reason = outcome.reason if others else f"{pool} has no other node that takes all of its pods"
    return f"{reason}{left_out and f'; {left_out}'}"


def _in_use(
    others: Iterable[NodeRow | WholeRow], outcome: Placement | Impossible | None, moving: Collection[str]
) -> Iterator[str]:
    """Yields a sentence for each device on which less is free as measured than would move there."""
    targets: Counter[str] = Counter()
    for device, items in outcome.assignments if isinstance(outcome, Placement) else ():
        targets[device.name] += sum(item.mib for item in items if item.name in moving)
    for row in others:
        for each in row.devices if isinstance(row, NodeRow) else ():
            name, free = f"{row.node}, gpu {each.index}", each.measured_free_mib
            if free is not None and targets[name] > free:
                yield f"if {name} is free in time: {targets[name]} MiB would move there, and {free} are free"


def _without_budget(mine: NodeRow | WholeRow, moving: Collection[str], evicted: Collection[str]) -> Iterator[str]:
    devices = mine.devices if isinstance(mine, NodeRow) else ()
    used = {f"{pod.namespace}/{pod.name}" for device in devices for pod in device.pods if not pod.declared_mib}
    if left := sorted((used - {*moving}) & {*evicted}):
        yield f"where the pods without a budget would go: {', '.join(left)}"


def _absent(cluster: ClusterSnapshot, pool: str, ending: Collection[str]) -> Iterator[Item]:
    """Yields the seats of the pool that have no pod after the pods in `ending` have ended."""
    pods = (
        (pod.namespace, pod.request, pod.seat)
        for name, devices in cluster.devices.items()
        if devices.pool == pool
        for pod in cluster.cache.node(name).pods.values()
        if pod.uid not in ending
    )
    present = present_seats(cluster.ledger.seats, pool, pods)
    for tenant, seats in sorted(seats_by_tenant(cluster.ledger.seats, pool).items()):
        for shape in absent_seats(seats, present.get(tenant, {})).elements():
            yield Item(f"seat of {tenant}", shape.mib, shape.count)


def _without_room(pool: str, outcome: Placement | Impossible | None, absent: Sequence[Item]) -> str:
    """Returns a sentence about absent seats that do not fit next to the moved pods."""
    names = ", ".join(f"{item.name}, {item.amount} MiB" for item in dict.fromkeys(absent))
    if outcome is None:
        return f"{pool}: not known if these absent seats fit next to the moved pods: {names}"
    return f"{pool}: not all of these absent seats fit next to the moved pods: {names}"


def _stays(pod: WholePod) -> bool:
    """Returns True for a pod of a DaemonSet and for a static pod. `kubectl drain` evicts neither."""
    return pod.static or (pod.controller is not None and pod.controller.kind == "DaemonSet")


def _devices(row: NodeRow | WholeRow) -> list[Bin]:
    if isinstance(row, WholeRow):
        return [Bin(row.node, row.free)]
    return [
        Bin(f"{row.node}, gpu {each.index}", max(each.free_mib - (row.unadvertised_mib if row.devices[1:] else 0), 0))
        for each in row.devices
    ]


def _targets(outcome: Placement | Impossible | None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for device, items in outcome.assignments if isinstance(outcome, Placement) else ():
        for item in items:
            found.setdefault(item.name, []).append(device.name)
    return found


def _promises(ledger: Ledger, pool: str) -> Iterator[str]:
    """Yields the contradictions that the ledger has only without one of the pool's nodes."""
    fewer = [replace(each, nodes=each.nodes - 1) if each.name == pool else each for each in ledger.pools]
    if any(each.nodes < 1 for each in fewer):
        gpus = ledger.quota_gpus(pool)
        promised = f"{ledger.promised_mib(pool)} MiB" if not gpus else f"{gpus} GPUs"
        yield f"{pool}: it has no other node, and {promised} promised"
        return
    now = {line for _, line in contradictions(ledger)}
    yield from (line for _, line in contradictions(replace(ledger, pools=tuple(fewer))) if line not in now)


def _promises_less_a_device(ledger: Ledger, name: str) -> Iterator[str]:
    """Yields the promises of the pool that one device less cannot keep, whichever device it is."""
    (pool,) = (each for each in ledger.pools if each.name == name)
    promised_mib, left_mib = ledger.promised_mib(name), pool.advertised_mib - pool.device_mib
    if promised_mib > left_mib:
        yield f"{name}: {promised_mib} MiB promised, {left_mib} left ({promised_mib - left_mib} over)"
        return
    items = [
        Item(seat.name, seat.gpumem_mib, seat.devices_per_pod)
        for seat in ledger.seats_in(name)
        for _ in range(seat.replicas)
    ]
    bins = [
        [Bin(f"node {node}, gpu {index}", pool.device_mib) for index in range(pool.device_count - (node == 0))]
        for node in range(pool.nodes)
    ]
    outcome = place_on_nodes(items, bins)
    if isinstance(outcome, Impossible):
        yield f"{name}: its seats do not all fit on one device less: {outcome.reason}"
    elif outcome is None:
        yield f"{name}: not known if its seats fit on one device less"


@text_of_lines
def without_text(report: Without, paper: Paper) -> Iterator[str]:
    pods = [move for move in report.moves if not move.stays]
    name, rest = (report.node, "nodes") if report.device is None else (f"{report.node}, gpu {report.device}", "devices")
    verdict = {
        True: f"all its pods fit on the other {rest}" if pods else "no pod has to move",
        False: f"its pods do not all fit on the other {rest}",
        None: f"not known if its pods fit on the other {rest}: the search ended without a result",
    }[report.fits]
    yield from paper.wrapped(f"{name} ({report.pool}): {verdict}", alarm=not report.fits)
    if report.why_not:
        yield from paper.wrapped(report.why_not, "  ")
    rows = [
        (
            move.namespace,
            move.name,
            "-" if move.mib is None else str(move.mib),
            str(move.gpus),
            "stays" if move.stays else move.target or "-",
        )
        for move in report.moves
    ]
    yield from paper.table(("NAMESPACE", "POD", "GPUMEM", "GPUS", "COULD MOVE TO"), rows)
    yield ""
    if report.promises:
        yield f"promises that the pool cannot keep without this {rest[:-1]}"
        for line in report.promises:
            yield from paper.wrapped(f"- {line}", "  ", alarm=True)
    else:
        yield f"all promises of {report.pool} fit without this {rest[:-1]}"
    yield ""
    yield from paper.unknown(report.unknown)
