"""Computes a possible seating: a device for each seat of a pool.

The scheduler may choose other devices, because it places one pod after another. If some seats do not fit, the seating
has all other seats. Units: whole MiB.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tenancy.devices.placement import Bin, Impossible, Item, Placement
from tenancy.devices.spread import AlikeNodes, place_on_nodes
from tenancy.drawing.text import listed
from tenancy.ledger import Ledger, Pool

# The maximum number of steps of the search for a placement. The policy pack permits 100 times as many steps, but a
# chart must be drawn fast.
_STEPS = 10_000

# The seats of a device, the largest first.
Seats = tuple[Item, ...]


@dataclass(frozen=True, kw_only=True)
class Seating:
    """The number of equal devices for each set of seats, and the seats without a device.

    The fullest devices come first. `remark` is the reason why the pool has too few devices.
    """

    devices: tuple[tuple[Seats, int], ...]
    unplaced: Seats = ()
    remark: str = ""


def seating(ledger: Ledger, pool: Pool) -> Seating:
    items = [
        Item(seat.name, seat.gpumem_mib, seat.devices_per_pod)
        for seat in ledger.seats_in(pool.name)
        for _ in range(seat.replicas)
    ]
    nodes = AlikeNodes(nodes=pool.nodes, device_count=pool.device_count, device_mib=pool.device_mib).needed(items)
    outcome = place_on_nodes(items, nodes, steps=_STEPS)
    if isinstance(outcome, Placement):
        return Seating(devices=_alike([held for _, held in outcome.assignments], pool))
    devices, unplaced = _crammed(items, nodes)
    return Seating(devices=_alike(devices, pool), unplaced=unplaced, remark=_remark(outcome))


def counted(items: Iterable[Item]) -> str:
    """Returns the name, the MiB and the number of equal items, such as `llama-swap 7000, frigate 2000 x 3`."""
    counts = Counter(items)
    return listed(f"{i.name} {i.amount}{f' x {count}' if count > 1 else ''}" for i, count in counts.items())


def _alike(devices: Iterable[Seats], pool: Pool) -> tuple[tuple[Seats, int], ...]:
    counts = Counter(tuple(sorted(held, key=lambda item: (-item.mib, item.name))) for held in devices)
    counts[()] += pool.gpus - counts.total()
    ordered = sorted(
        counts.items(), key=lambda pair: (-sum(item.mib for item in pair[0]), pair[0][0].name if pair[0] else "")
    )
    return tuple((held, count) for held, count in ordered if count)


def _remark(outcome: Impossible | None) -> str:
    if isinstance(outcome, Impossible):
        return f"no seating: {counted(outcome.items)}: {outcome.reason}"
    return "no seating found; the policy pack looks longer"


def _crammed(items: Sequence[Item], nodes: Sequence[Sequence[Bin]]) -> tuple[list[Seats], Seats]:
    """Places the largest seats first. Each seat gets the fullest device with enough free memory for the seat."""
    free = [[device.mib for device in node] for node in nodes]
    rows: list[list[Seats]] = [[()] * len(node) for node in nodes]
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
    return [held for node in rows for held in node], tuple(unplaced)
