"""Places pods that need several devices of one node. The result of the placement is exact.

placement.py then places the pods with one device in the memory that is left. The search is depth-first over the
devices of each pod, with a limit of steps. Units: MiB.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from tenancy.devices.placement import (
    STEPS,
    Bin,
    Impossible,
    Item,
    OutOfStepsError,
    Placement,
    StepsLeft,
    fits,
    fits_on_equal_devices,
    place,
)

_PARTS = 10  # the first comparison, as if each device of a pod were a pod, may use a tenth of the steps

# Maps each pair of MiB on each device and number of devices to the number of pods.
_Requests = Mapping[tuple[int, int], int]


@dataclass(frozen=True, kw_only=True)
class AlikeNodes:
    """A group of nodes that have the same number of equal devices."""

    nodes: int
    device_count: int
    device_mib: int

    def needed(self, items: Sequence[Item]) -> list[list[Bin]]:
        """Returns the empty devices of each node, without the devices that the items cannot use."""
        if any(item.devices > 1 for item in items):
            sizes = [self.device_count] * min(self.nodes, len(items))
        else:  # a pod with one device may be on any node, so one list has all devices
            sizes = [min(self.nodes * self.device_count, len(items))]
        return [[Bin("", self.device_mib)] * size for size in sizes]


def most_pods(places: Iterable[int], devices: int) -> int:
    """Returns how many pods with `devices` devices each fit on a node.

    `places` has, for each device of the node, the number of pods for which the device has enough free memory. By the
    theorem of Gale and Ryser, `n` pods fit if the devices have at least `n * devices` places in total. Each device adds
    at most `n` places to the total.
    """
    counts = [count for count in places if count > 0]
    low, high = 0, sum(counts) // devices
    while low < high:
        pods = (low + high + 1) // 2
        low, high = (pods, high) if sum(min(c, pods) for c in counts) >= pods * devices else (low, pods - 1)
    return low


def fits_on_separate_nodes(requests: _Requests, alike: AlikeNodes) -> bool:
    """Returns True if all pods fit in a way in which no node has both kinds of pods, with one and with several devices.

    If the result is False, the pods may still fit in another way.
    """
    used = 0
    for (mib, devices), count in requests.items():
        if devices > 1:
            on_a_node = most_pods([alike.device_mib // mib] * alike.device_count, devices)
            if not on_a_node:
                return False
            used += -(-count // on_a_node)
    alone = {mib: count for (mib, devices), count in requests.items() if devices == 1}
    left = (alike.nodes - used) * alike.device_count
    return left >= 0 and fits_on_equal_devices(alone, alike.device_mib, left)


def place_on_nodes(
    items: Sequence[Item], nodes: Sequence[Sequence[Bin]], *, steps: int = STEPS
) -> Placement | Impossible | None:
    """Returns a placement in which each device holds at most its MiB, or a proof that no placement exists.

    Returns None if the search ends before it finds either.
    """
    devices = [device for node in nodes for device in node]
    several, alone, parts = _split(items, nodes)
    if not several:
        return place(items, devices, steps=steps)
    anywhere = place([*alone, *parts], devices, steps=steps // _PARTS)
    if isinstance(anywhere, Impossible):
        return anywhere
    if crowd := _crowd(several, nodes):
        return crowd
    try:
        ways = _Search(several, alone, nodes, StepsLeft(steps)).run()
    except OutOfStepsError:
        return None
    if ways is None:
        reason = "no arrangement puts each pod on different devices of one node; all were tried"
        return Impossible((*several, *alone), reason)
    return _placed(several, alone, nodes, ways, steps)


def fits_on_nodes(items: Sequence[Item], nodes: Sequence[Sequence[Bin]], work: StepsLeft) -> bool:
    """Returns True if all pods fit. Raises OutOfStepsError."""
    several, alone, parts = _split(items, nodes)
    if not fits([*alone, *parts], [device.mib for node in nodes for device in node], work) or _crowd(several, nodes):
        return False
    return not several or _Search(several, alone, nodes, work).run() is not None


def _split(items: Iterable[Item], nodes: Sequence[Sequence[Bin]]) -> tuple[list[Item], list[Item], list[Item]]:
    """Returns the items with several devices, the items with one device, and one item for each of several devices.

    An item with more devices than there are fits nowhere, and is not divided further than into these.
    """
    most = sum(map(len, nodes))
    ordered = sorted(items, key=lambda item: (-item.mib * item.devices, -item.mib, item.name))
    several = [item for item in ordered if item.devices > 1]
    parts = [replace(item, devices=1) for item in several for _ in range(min(item.devices, most))]
    return several, [item for item in ordered if item.devices == 1], parts


class _Way(NamedTuple):
    """The devices of one pod: the index of the node, and the indexes of the devices on the node."""

    node: int
    devices: tuple[int, ...]


class _Search:
    """Searches depth-first for the devices of each pod. Nodes with equal free memory count as one node."""

    def __init__(
        self, several: Sequence[Item], alone: Sequence[Item], nodes: Sequence[Sequence[Bin]], work: StepsLeft
    ) -> None:
        self.several, self.alone, self.work = several, alone, work
        self.free = [[device.mib for device in node] for node in nodes]
        self._seen: set[object] = set()

    def run(self) -> list[_Way] | None:
        """Returns the devices of each pod with several devices, or None. Raises OutOfStepsError."""
        path: list[_Way] = []
        open_ = [self._ways(0)]
        while open_:
            way = next(open_[-1], None)
            if way is not None:
                self._change(way, -self.several[len(path)].mib)
                path.append(way)
                if len(path) == len(self.several):
                    if fits(self.alone, [mib for node in self.free for mib in node], self.work):
                        return path
                    self._change(path.pop(), self.several[-1].mib)
                    continue
                open_.append(self._ways(len(path)))
                continue
            open_.pop()
            if path:
                undone = path.pop()
                self._change(undone, self.several[len(path)].mib)
        return None

    def _ways(self, pod: int) -> Iterator[_Way]:
        """Returns the different ways to place a pod, with the fullest devices first.

        A state that the search has seen before has no ways, because the search ends with the first success.
        """
        self.work.take(len(self.free) + 1)
        nodes = [tuple(sorted(node)) for node in self.free]
        state = pod, frozenset(Counter(nodes).items())
        if state in self._seen:
            return iter(())
        self._seen.add(state)
        item = self.several[pod]
        found: list[tuple[int, int, tuple[int, ...], _Way]] = []
        for node, number in {node: number for number, node in enumerate(nodes)}.items():
            free = self.free[number]
            roomy = sorted((index for index, mib in enumerate(free) if mib >= item.mib), key=free.__getitem__)
            alike = [[*devices] for _, devices in groupby(roomy, key=free.__getitem__)]
            ways = [_Way(number, chosen) for chosen in _chosen(alike, item.devices)]
            found += [(sum(free[index] for index in way.devices), sum(node), node, way) for way in ways]
        self.work.take(len(found))
        return (way for *_, way in sorted(found))

    def _change(self, way: _Way, mib: int) -> None:
        for index in way.devices:
            self.free[way.node][index] += mib


def _chosen(alike: Sequence[Sequence[int]], devices: int) -> Iterator[tuple[int, ...]]:
    """Yields the different ways to choose `devices` devices. `alike` has groups of devices with equal free memory."""
    if sum(map(len, alike)) < devices:
        return
    if not devices:
        yield ()
        return
    first, *others = alike
    for taken in range(min(len(first), devices), -1, -1):
        for more in _chosen(others, devices - taken):
            yield (*first[:taken], *more)


def _placed(
    several: Sequence[Item], alone: Sequence[Item], nodes: Sequence[Sequence[Bin]], ways: Sequence[_Way], steps: int
) -> Placement | None:
    held: dict[tuple[int, int], tuple[Item, ...]] = {}
    for item, way in zip(several, ways, strict=True):
        for index in way.devices:
            held[way.node, index] = (*held.get((way.node, index), ()), item)
    devices = [device for node in nodes for device in node]
    first = [held.get((number, index), ()) for number, node in enumerate(nodes) for index in range(len(node))]
    left = [replace(d, mib=d.mib - sum(item.mib for item in on)) for d, on in zip(devices, first, strict=True)]
    rest = place(alone, left, steps=steps)
    if not isinstance(rest, Placement):
        return None
    both = zip(devices, first, rest.assignments, strict=True)
    return Placement(tuple((device, (*shared, *others)) for device, shared, (_, others) in both))


def _crowd(several: Sequence[Item], nodes: Sequence[Sequence[Bin]]) -> Impossible | None:
    """Returns a contradiction if the items of at least some size need more memory together than the nodes have.

    If no size of items gives a contradiction, returns None.
    """
    kinds = Counter(tuple(device.mib for device in node) for node in nodes)
    sizes = {
        devices: sorted(i.mib for i in several if i.devices >= devices) for devices in {i.devices for i in several}
    }
    for mib, devices in {(item.mib, item.devices): None for item in several}:
        count = len(sizes[devices]) - bisect_left(sizes[devices], mib)
        room = sum(most_pods([each // mib for each in node], devices) * alike for node, alike in kinds.items())
        if count > room:
            what = f"pods with {mib} MiB or more on {devices} or more devices of a node"
            items = [item for item in several if item.mib >= mib and item.devices >= devices]
            return Impossible(tuple(items[: room + 1]), f"{room + 1} {what}; the nodes have room for {room}")
    return None
