"""Computes a possible seating: a device for each seat of a pool, for charts and pictures.

The scheduler may choose other devices, because it places one pod after another. If some seats do not fit, the seating
has all other seats. Units: whole MiB.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tenancy.bars import listed
from tenancy.devices.placement import Bin, Impossible, Item, Placement, Undecided
from tenancy.devices.spread import AlikeNodes, place_on_nodes
from tenancy.ledger import Ledger, Pool

# The maximum number of steps of the search for a placement. The policy pack permits 100 times as many steps, but a
# chart must be drawn fast.
_STEPS = 10_000
_MOST_SEATS = 20_000
_MANY_DEVICES, _MOST_OF_A_NODE = 8, 32

# The seats of each device of each node. If every pod has one device, one list has the devices of all nodes.
_Rows = list[list[tuple[Item, ...]]]


@dataclass(frozen=True, kw_only=True)
class SeatGroup:
    """The `count` equal seats of one resident. Each seat has `mib`."""

    name: str
    mib: int
    count: int = 1

    @property
    def total_mib(self) -> int:
        return self.mib * self.count


@dataclass(frozen=True, kw_only=True)
class SeatedDevice:
    """A device with its seats. The largest seats come first. Queues may hand out `queued_mib` of the device."""

    seats: tuple[SeatGroup, ...] = ()
    queued_mib: int = 0

    @property
    def seats_mib(self) -> int:
        return sum(each.total_mib for each in self.seats)


@dataclass(frozen=True, kw_only=True)
class Seating:
    """A possible seating of a pool.

    `devices` and `nodes` have the number of equal devices and nodes. The fullest come first. `unplaced` has the seats
    without a device, and `remark` the reason why the pool has too few devices.
    """

    devices: tuple[tuple[SeatedDevice, int], ...]
    nodes: tuple[tuple[tuple[SeatedDevice, ...], int], ...]
    unplaced: tuple[Item, ...] = ()
    remark: str = ""

    @property
    def seats(self) -> tuple[SeatGroup, ...]:
        """Returns one group for all equal seats of the pool. The groups with the most memory come first."""
        return kinds(replace(seat, count=seat.count * count) for device, count in self.devices for seat in device.seats)


class TooManySeatsError(ValueError):
    """Raised if a pool has too many seats for a chart."""


def seating(ledger: Ledger, pool: Pool) -> Seating:
    """Returns a possible seating of the pool's seats. Raises TooManySeatsError."""
    items = _items(ledger, pool)
    nodes = AlikeNodes(nodes=pool.nodes, device_count=pool.device_count, device_mib=pool.device_mib).needed(items)
    outcome = place_on_nodes(items, nodes, steps=_STEPS)
    if isinstance(outcome, Placement):
        return _seatings([(ledger, pool)], [_rows(outcome, nodes)])[0]
    rows, unplaced = _crammed(items, nodes)
    (found,) = _seatings([(ledger, pool)], [rows])
    return replace(found, unplaced=unplaced, remark=_remark(outcome))


def aligned_seatings(sides: Sequence[tuple[Ledger, Pool]]) -> list[Seating]:
    """Returns a possible seating for each side of a change: the pool before and after it. Raises TooManySeatsError.

    If possible, a seat without a change has the same device on both sides. Both seatings then list the same devices in
    the same order, and the devices with a change come first.
    """
    aligned = _aligned(sides) if len(sides) > 1 else None
    return aligned or [seating(ledger, pool) for ledger, pool in sides]


def is_drawn_by_node(pool: Pool) -> bool:
    """Returns True if a picture of the pool has a line for each node, and not for each device."""
    return pool.gpus > _MANY_DEVICES and pool.device_count <= _MOST_OF_A_NODE


def kinds(seats: Iterable[SeatGroup]) -> tuple[SeatGroup, ...]:
    """Returns one group for all seats with the same name and size. The groups with the most memory come first."""
    counts: Counter[tuple[str, int]] = Counter()
    for each in seats:
        counts[each.name, each.mib] += each.count
    found = [SeatGroup(name=name, mib=mib, count=count) for (name, mib), count in counts.items()]
    return tuple(sorted(found, key=lambda each: (-each.total_mib, each.name)))


def counted(items: Sequence[Item]) -> str:
    """Returns the name, the MiB and the number of equal items, such as `llama-swap 7000, frigate 2000 x 3`."""
    counts = Counter(items)
    return listed(f"{i.name} {i.amount}{f' x {count}' if count > 1 else ''}" for i, count in counts.items())


def _items(ledger: Ledger, pool: Pool) -> list[Item]:
    seats = ledger.seats_in(pool.name)
    count = sum(seat.replicas for seat in seats)
    if count > _MOST_SEATS:
        raise TooManySeatsError(f"{count} seats: {_MOST_SEATS} at most are drawn; the policy pack places them")
    return [Item(seat.name, seat.gpumem_mib, seat.devices_per_pod) for seat in seats for _ in range(seat.replicas)]


def _rows(placement: Placement, nodes: Sequence[Sequence[Bin]]) -> _Rows:
    devices = iter([held for _, held in placement.assignments])
    return [[*islice(devices, len(node))] for node in nodes]


def _aligned(sides: Sequence[tuple[Ledger, Pool]]) -> list[Seating] | None:
    """Returns a seating for each side, or None if not all seats fit. First places the seats that all sides have."""
    pools = [pool for _, pool in sides]
    if len({pool.device_count for pool in pools}) > 1:
        return None
    items = [Counter(_items(ledger, pool)) for ledger, pool in sides]
    common, every = items[0] & items[-1], items[0] | items[-1]
    least_mib = min(pool.device_mib for pool in pools)
    alike = AlikeNodes(
        nodes=min(pool.nodes for pool in pools), device_count=pools[0].device_count, device_mib=least_mib
    )
    nodes = alike.needed([*every.elements()])
    shared = place_on_nodes([*common.elements()], nodes, steps=_STEPS)
    if not isinstance(shared, Placement):
        return None
    placed = []
    for pool, wanted in zip(pools, items, strict=True):
        kept = _rows(shared, nodes)
        left = [[Bin("", pool.device_mib - sum(item.mib for item in device)) for device in node] for node in kept]
        more = place_on_nodes([*(wanted - common).elements()], left, steps=_STEPS)
        if not isinstance(more, Placement):
            return None
        both = zip(kept, _rows(more, left), strict=True)
        placed.append([[old + new for old, new in zip(*node, strict=True)] for node in both])
    return _seatings(sides, placed)


def _seatings(sides: Sequence[tuple[Ledger, Pool]], placed: Sequence[_Rows]) -> list[Seating]:
    """Returns a seating for each side from the seats of each device."""
    rows, idle = [], []
    for (ledger, pool), nodes in zip(sides, placed, strict=True):
        seated = [[SeatedDevice(seats=_grouped(device)) for device in node] for node in nodes]
        queued = _with_queues(Counter(device for node in seated for device in node), ledger, pool)
        rows.append([[queued[device] for device in node] for node in seated])
        idle.append(queued[SeatedDevice()])
    together = [[*zip(*node, strict=True)] for node in zip(*rows, strict=True)]
    used = [[both for both in node if any(device.seats for device in both)] for node in together]
    size = sides[0][1].device_count
    if not any(item.devices > 1 for nodes in placed for node in nodes for device in node for item in device):
        # any device may be on any node, so alike devices come together
        used = [*_chunks(sorted((both for node in used for both in node), key=_order), size)]
    devices = Counter(both for node in used for both in node)
    full = (sorted([*node, *[tuple(idle)] * (size - len(node))], key=_order) for node in used if node)
    alike = Counter(map(tuple, full))
    found = []
    for number, (_, pool) in enumerate(sides):
        of_devices = [
            (both[number], count) for both, count in sorted(devices.items(), key=lambda pair: _order(pair[0]))
        ]
        of_nodes = [
            (tuple(both[number] for both in node), count)
            for node, count in sorted(alike.items(), key=lambda pair: _order_of_nodes(pair[0]))
        ]
        of_devices.append((idle[number], pool.gpus - devices.total()))
        of_nodes.append(((idle[number],) * size, pool.nodes - alike.total()))
        found.append(
            Seating(
                devices=tuple(pair for pair in of_devices if pair[1] > 0),
                nodes=tuple(pair for pair in of_nodes if pair[1] > 0),
            )
        )
    return found


def _grouped(items: Iterable[Item]) -> tuple[SeatGroup, ...]:
    found = kinds(SeatGroup(name=item.name, mib=item.mib) for item in items)
    return tuple(sorted(found, key=lambda each: (-each.mib, each.name)))


def _with_queues(counts: Counter[SeatedDevice], ledger: Ledger, pool: Pool) -> dict[SeatedDevice, SeatedDevice]:
    """Returns each device with its part of the memory that queues may hand out."""
    counts[SeatedDevice()] += pool.gpus - counts.total()
    left_mib = ledger.quota_mib(pool.name)
    found = {}
    for device, count in sorted(counts.items(), key=lambda pair: _order((pair[0],))):
        queued_mib = min(pool.device_mib - device.seats_mib, -(-left_mib // count)) if count else 0
        left_mib = max(left_mib - queued_mib * count, 0)
        found[device] = replace(device, queued_mib=queued_mib)
    return found


def _order(sides: Sequence[SeatedDevice]) -> tuple[object, ...]:
    """Returns the sort key of a device. Devices with a change come first, and then the fullest devices."""
    seats = sides[-1].seats
    return seats == sides[0].seats, -sides[-1].seats_mib, [(-each.mib, each.name, each.count) for each in seats]


def _order_of_nodes(devices: Sequence[Sequence[SeatedDevice]]) -> tuple[object, ...]:
    changed = any(sides[0].seats != sides[-1].seats for sides in devices)
    return not changed, -sum(sides[-1].seats_mib for sides in devices), [_order(sides) for sides in devices]


def _chunks(devices: Sequence[tuple[SeatedDevice, ...]], size: int) -> Iterator[list[tuple[SeatedDevice, ...]]]:
    yield from ([*devices[at : at + size]] for at in range(0, len(devices), size))


def _remark(outcome: Impossible | Undecided) -> str:
    if isinstance(outcome, Impossible):
        return f"no seating: {counted(outcome.items)}: {outcome.reason}"
    return f"no seating found in {outcome.steps} steps; the policy pack looks longer"


def _crammed(items: Sequence[Item], nodes: Sequence[Sequence[Bin]]) -> tuple[_Rows, tuple[Item, ...]]:
    """Places the largest seats first. Each seat gets the fullest device with enough free memory for the seat."""
    free = [[device.mib for device in node] for node in nodes]
    rows: _Rows = [[()] * len(node) for node in nodes]
    unplaced = []
    for item in sorted(items, key=lambda item: (-item.mib * item.devices, item.name)):
        choices = {}  # lists, for each node, the fullest devices that have enough free memory
        for number, node in enumerate(free):
            roomy = sorted((mib, index) for index, mib in enumerate(node) if mib >= item.mib)
            if len(roomy) >= item.devices:
                choices[number] = roomy[: item.devices]
        if not choices:
            unplaced.append(item)
            continue
        tightest = min(choices, key=lambda number: sum(mib for mib, _ in choices[number]))
        for _, index in choices[tightest]:
            free[tightest][index] -= item.mib
            rows[tightest][index] += (item,)
    return rows, tuple(unplaced)
