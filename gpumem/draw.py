"""Draws the report of `kubectl gpumem who` as text, in columns and bars. Pure."""

from collections.abc import Iterator, Sequence

from gpumem.cluster import GatedWorkload
from gpumem.paper import Paper, text_of_lines
from gpumem.pools import PoolRow, WholePoolRow
from gpumem.queues import QueueRow
from gpumem.rows import DeviceRow, Holder, NodeRow
from gpumem.who import Who
from tenancy.drawing.model import Fact, Kind, Part

PODS_HEADER = ("NAMESPACE", "POD", "SEAT", "DECLARED", "USED", "OVER", "CAPPED", "STATE")
QUEUES_HEADER = ("QUEUE", "COHORT", "FLAVOR", "QUOTA", "IN USE", "BORROWED", "LENT", "FREE", "TO BORROW", "WAITING")
GATES_HEADER = ("NAMESPACE", "NAME", "POOL", "NEEDS", "GATE")


@text_of_lines
def who_text(report: Who, paper: Paper) -> Iterator[str]:
    yield from paper.wrapped(report.observed, alarm=True)
    for pool in report.pools:
        yield from paper.facts(pool.pool, pool_facts(pool))
    for whole in report.whole_pools:
        yield from paper.wrapped(f"{whole.pool}: {whole_line(whole)}")
    if report.own is not None:
        yield f"{report.own}: its pods hold {report.own_held_mib} of its budget of {report.own_budget_mib} MiB"
    yield ""
    for node in report.nodes:
        yield from _node(node, report.scope, paper)
    for row in report.whole:
        offered = "advertises none" if row.offered is None else f"{row.held} of {row.offered} GPUs held"
        yield f"{row.node} ({row.pool}): {offered}"
        if row.unusable:
            yield from paper.wrapped(f"takes no new pod: {row.unusable}", "  ", alarm=True)
        yield from paper.wrapped(", ".join(row.pods), "  ")
        yield ""
    if not report.nodes and not report.whole:
        yield "no node of a pool is among them"
        yield ""
    if report.waiting:
        yield "waiting"
        header = ("NAMESPACE", "POD", "SEAT", "GPUMEM", "GPUS", "AGE")
        yield from paper.table(
            header,
            [(w.namespace, w.name, w.seat or "-", str(w.mib), str(w.gpus), w.age) for w in report.waiting],
        )
        yield ""
    yield from _queues(report.queues, paper)
    if report.gates:
        yield "on demand"
        yield from paper.table(GATES_HEADER, map(gate_row, report.gates))
        yield ""
    yield from paper.unknown(report.unknown)


def _queues(queues: Sequence[QueueRow], paper: Paper) -> Iterator[str]:
    if queues:
        yield "queues, in GPUs"
        yield from paper.table(QUEUES_HEADER, map(queue_row, queues))
        yield ""


def queue_row(queue: QueueRow) -> tuple[str, ...]:
    used = (queue.nominal, queue.used, queue.borrowed, queue.lent, queue.free, queue.borrowable, queue.waiting)
    return (queue.queue, queue.cohort or "-", queue.flavor, *map(str, used))


def gate_row(gate: GatedWorkload) -> tuple[str, ...]:
    return (gate.namespace, gate.name, gate.pool, str(gate.need_mib), gate.state)


def _node(node: NodeRow, scope: str | None, paper: Paper) -> Iterator[str]:
    yield f"{node.node} ({node.pool or 'no pool'})"
    if node.unusable:
        yield from paper.wrapped(f"takes no new pod: {node.unusable}", "  ", alarm=True)
    elif not node.devices:
        yield from paper.wrapped("its devices are not known", "  ")
    for device in node.devices:
        yield from _device(device, scope, paper)
    if node.adrift:
        yield from paper.wrapped("their device is gone, or not known:", "  ", alarm=True)
        yield from _pods(node.adrift, paper)
    yield ""


def device_facts(device: DeviceRow, scope: str | None) -> Iterator[Fact]:
    kept_mib = _kept_mib(device, scope)
    kept = f", {kept_mib} of them planned for absent seats" if kept_mib else ""
    room = (
        f", {device.free_mib} free by the ledger{kept}"
        if scope is None
        else f" by {scope}; what others hold is not known"
    )
    yield Fact(f"{device.held_mib} of {device.offered_mib} MiB held{room}", device.held_mib > device.offered_mib)
    if device.measured_free_mib is not None:
        under = device.measured_free_mib < device.floor_mib
        used = f"measured: {device.measured_used_mib} used, {device.measured_free_mib} free"
        floor = f", {'under' if under else 'above'} the floor of {device.floor_mib}" if device.floor_mib else ""
        yield Fact(used + floor, under)
    for wrong, what in ((not device.healthy, "unhealthy"), (device.excluded, "excluded by its node's annotation")):
        if wrong:
            yield Fact(f"{what}: it takes no new pod", alarm=True)


def device_parts(device: DeviceRow, scope: str | None) -> Iterator[Part]:
    """Yields the parts of a device's bar: the pods, the memory of other pods, the planned memory, and the rest."""
    kept_mib = _kept_mib(device, scope)
    holders = [pod for pod in device.pods if pod.declared_mib]
    rest = device.offered_mib - device.held_mib if scope is None else 0
    for p in holders:
        yield Part(name=p.seat or p.name, amount=p.declared_mib, owner=p.namespace)
    others = device.held_mib - sum(pod.declared_mib for pod in holders)
    yield Part(name="others", amount=others)
    yield Part(name="planned", amount=kept_mib, kind=Kind.PLANNED)
    yield Part(name="free", amount=rest - kept_mib, kind=Kind.FREE)


def _kept_mib(device: DeviceRow, scope: str | None) -> int:
    return device.kept_mib if scope is None else 0


def _device(device: DeviceRow, scope: str | None, paper: Paper) -> Iterator[str]:
    yield from paper.facts(f"gpu {device.index} {device.uuid}", device_facts(device, scope), "  ")
    parts = [part for part in device_parts(device, scope) if part.total > 0]
    if parts:
        yield paper.bar(parts)
    yield from _pods(device.pods, paper)


def _pods(pods: Sequence[Holder], paper: Paper) -> Iterator[str]:
    yield from paper.table(PODS_HEADER, map(pod_row, pods))


def pod_row(pod: Holder) -> tuple[str, ...]:
    return (
        pod.namespace,
        pod.name or "(ended, or not known yet)",
        pod.seat or "-",
        str(pod.declared_mib or "-"),
        "-" if pod.used_mib is None else str(pod.used_mib),
        str(pod.over_mib or "-"),
        "-" if pod.capped is None else f"no: {pod.capped}" if pod.capped else "yes",
        pod.state,
    )


def pool_facts(pool: PoolRow) -> Iterator[Fact]:
    promised = f"{pool.promised_mib} of {pool.advertised_mib} MiB promised"
    over = f", {-pool.unpromised_mib} too much" if pool.unpromised_mib < 0 else ""
    new = "" if over or pool.largest_new_mib is None else f"; a new seat may have {pool.largest_new_mib}"
    yield Fact(f"{promised}{over}{new}", bool(over))
    if pool.free_mib is None:
        yield Fact("what is free is not known")
    else:
        where = f"; {pool.largest_free_mib} on one device" if pool.largest_free_mib != pool.free_mib else ""
        yield Fact(f"for a seat: {pool.free_mib} free by the ledger{where}")
        where = f"; {pool.largest_room_mib} on one device" if pool.largest_room_mib != pool.room_mib else ""
        above = pool.floor_mib if pool.measured_free_mib is not None else 0
        also = f"; as measured, that much must be free above the floor of {above}" if above else ""
        yield Fact(f"for other pods: {pool.room_mib} free{where}{also}")
    if pool.measured_free_mib is not None:
        lent = f", {pool.lent_mib} used by pods that declare nothing" if pool.lent_mib is not None else ""
        yield Fact(f"measured: {pool.measured_free_mib} free{lent}")


def whole_line(pool: WholePoolRow) -> str:
    held = "" if pool.held is None else f", {pool.offered} are there, {pool.free} of them free"
    return f"{pool.promised} of {pool.gpus} GPUs promised to queues{held}"
