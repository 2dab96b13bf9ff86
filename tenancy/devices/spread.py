"""Places pods that need several devices of one node. The result of the placement is exact.

placement.py then places the pods with one device in the memory that is left. The search is depth-first over the
devices of each pod, with a limit of steps. Units: MiB.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tenancy.devices.placement import (
    STEPS,
    Bin,
    Impossible,
    Item,
    OutOfStepsError,
    Placement,
    StepsLeft,
    Undecided,
    fits,
    fits_on_equal_devices,
    place,
)

_PARTS = 10  # the search for a smaller set that does not fit may use a tenth of the steps

_Node = tuple[int, ...]  # The free MiB of the devices of a node, sorted.

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
) -> Placement | Impossible | Undecided:
    """Returns a placement in which each device holds at most its MiB, or a proof that no placement exists.

    Returns Undecided if the search needs more than `steps`.
    """
    devices = [device for node in nodes for device in node]
    several = _ordered(items)
    if not several:
        return place(items, devices, steps=steps)
    alone = [item for item in items if item.devices == 1]
    parts = [replace(item, devices=1) for item in several for _ in range(item.devices)]
    anywhere = place([*alone, *parts], devices, steps=steps // _PARTS)
    if isinstance(anywhere, Impossible):
        return anywhere
    if crowd := _crowd(several, nodes):
        return crowd
    sizes = [tuple(sorted(device.mib for device in node)) for node in nodes]
    search = _Search(several, alone, sizes, StepsLeft(steps))
    choices = search.choices()
    if choices is not None:
        return _replayed(several, alone, nodes, choices, steps)
    if search.unsure:
        return Undecided(steps)
    smallest = _smallest(items, sizes, StepsLeft(steps // _PARTS))
    return Impossible(smallest, "no arrangement puts each pod on different devices of one node; all were tried")


def fits_on_nodes(items: Sequence[Item], nodes: Sequence[Sequence[Bin]], work: StepsLeft) -> bool:
    """Returns True if all pods fit. Raises OutOfStepsError."""
    several = _ordered(items)
    alone = [item for item in items if item.devices == 1]
    sizes = [tuple(sorted(device.mib for device in node)) for node in nodes]
    parts = [replace(item, devices=1) for item in several for _ in range(item.devices)]
    if not fits([*alone, *parts], [mib for node in sizes for mib in node], work) or _crowd(several, nodes):
        return False
    if not several:
        return True
    search = _Search(several, alone, sizes, work)
    choices = search.choices()
    if choices is None and search.unsure:
        raise OutOfStepsError
    return choices is not None


def _ordered(items: Iterable[Item]) -> list[Item]:
    several = (item for item in items if item.devices > 1)
    return sorted(several, key=lambda item: (-item.mib * item.devices, -item.mib, item.name))


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


@dataclass(frozen=True)
class _Choice:
    """The placement of one pod. `node` has the free MiB of the node's devices before the placement. `spaces` has the
    free MiB of the pod's devices.
    """

    node: _Node
    spaces: tuple[int, ...]


class _Search:
    """Searches depth-first for the devices of each pod. The search tries only one of several nodes with equal free
    memory.

    `unsure` is True if the search used up its steps before it had tried every choice.
    """

    def __init__(self, several: Sequence[Item], alone: Sequence[Item], nodes: Iterable[_Node], work: StepsLeft) -> None:
        self.several, self.alone, self.work = several, alone, work
        self.free = Counter(nodes)
        self.unsure = False
        self._part = work.left // _PARTS
        self._failed: set[tuple[int, frozenset[tuple[_Node, int]]]] = set()
        self._tried: set[frozenset[tuple[int, int]]] = set()

    def choices(self) -> list[_Choice] | None:
        try:
            return self._choices()
        except OutOfStepsError:
            self.unsure = True
            return None

    def _choices(self) -> list[_Choice] | None:
        path: list[_Choice] = []
        if not self.several:
            return path if self._leaves_room() else None
        open_ = [self._ways(0)]
        while open_:
            choice = next(open_[-1], None)
            if choice is not None:
                self._take(choice, self.several[len(path)].mib)
                path.append(choice)
                if len(path) == len(self.several) and self._leaves_room():
                    return path
                open_.append(self._ways(len(path)))
                continue
            open_.pop()
            if path:
                undone = path.pop()
                self._give_back(undone, self.several[len(path)].mib)
        return None

    def _ways(self, pod: int) -> Iterator[_Choice]:
        """Returns the possible choices of devices for a pod, with the fullest devices first.

        If the search has failed in this state before, returns no choice.
        """
        self.work.take(len(self.free) + 1)
        state = (pod, frozenset(self.free.items()))
        if pod == len(self.several) or state in self._failed:
            return iter(())
        # The search enters each state at most once, because it ends with the first state that does not fail.
        self._failed.add(state)
        item = self.several[pod]
        found = [
            _Choice(node, spaces)
            for node in self.free
            for spaces in _spaces([space for space in node if space >= item.mib], item.devices)
        ]
        self.work.take(len(found))
        return iter(sorted(found, key=lambda choice: (sum(choice.spaces), sum(choice.node), choice.node)))

    def _take(self, choice: _Choice, mib: int) -> None:
        _swap(self.free, choice.node, _after(choice, mib))

    def _give_back(self, choice: _Choice, mib: int) -> None:
        _swap(self.free, _after(choice, mib), choice.node)

    def _leaves_room(self) -> bool:
        sizes = Counter(space for node, count in self.free.items() for space in node * count)
        key = frozenset(sizes.items())
        if key in self._tried:
            return False
        self._tried.add(key)
        part = StepsLeft(min(self._part, self.work.left))
        before = part.left
        try:
            return fits(self.alone, [*sizes.elements()], part)
        except OutOfStepsError:
            self.unsure = True
            return False
        finally:
            self.work.take(before - max(part.left, 0))


def _spaces(fitting: Sequence[int], devices: int) -> Iterator[tuple[int, ...]]:
    """Yields each different way to choose `devices` of the free spaces in `fitting`. `fitting` must be sorted."""
    yield from _chosen([(space, len([*alike])) for space, alike in groupby(fitting)], devices)


def _chosen(groups: Sequence[tuple[int, int]], devices: int) -> Iterator[tuple[int, ...]]:
    if sum(count for _, count in groups) < devices:
        return
    if not devices:
        yield ()
        return
    (space, count), *others = groups
    for taken in range(min(count, devices), -1, -1):
        for more in _chosen(others, devices - taken):
            yield (space,) * taken + more


def _after(choice: _Choice, mib: int) -> _Node:
    left = Counter(choice.node)
    left.subtract(choice.spaces)
    return tuple(sorted([*(+left).elements(), *(space - mib for space in choice.spaces)]))


def _swap(free: Counter[_Node], gone: _Node, come: _Node) -> None:
    free[gone] -= 1
    if not free[gone]:
        del free[gone]
    free[come] += 1


def _replayed(
    several: Sequence[Item],
    alone: Sequence[Item],
    nodes: Sequence[Sequence[Bin]],
    choices: Sequence[_Choice],
    steps: int,
) -> Placement | Undecided:
    """Returns the placement of all items. Assigns a device to each free space in `choices`."""
    left = [[device.mib for device in node] for node in nodes]
    held: list[list[tuple[Item, ...]]] = [[()] * len(node) for node in nodes]
    for item, choice in zip(several, choices, strict=True):
        number = next(number for number, node in enumerate(left) if tuple(sorted(node)) == choice.node)
        for index in _indices(left[number], choice.spaces):
            left[number][index] -= item.mib
            held[number][index] += (item,)
    devices = [device for node in nodes for device in node]
    free = [mib for node in left for mib in node]
    rest = place(alone, [Bin(device.name, mib) for device, mib in zip(devices, free, strict=True)], steps=steps)
    if not isinstance(rest, Placement):
        return Undecided(steps)
    first = [items for node in held for items in node]
    both = zip(devices, first, rest.assignments, strict=True)
    return Placement(tuple((device, (*shared, *others)) for device, shared, (_, others) in both))


def _indices(left: Sequence[int], spaces: Iterable[int]) -> list[int]:
    found: list[int] = []
    for space in spaces:
        found.append(next(index for index, mib in enumerate(left) if mib == space and index not in found))
    return found


def _smallest(items: Sequence[Item], nodes: Sequence[_Node], work: StepsLeft) -> tuple[Item, ...]:
    """Removes items while the remaining items do not fit and the search has steps left. Returns the remaining items of
    the set.
    """
    kept = [*items]
    for item in sorted({*items}, key=lambda item: (item.mib * item.devices, item.name)):
        while item in kept and work.left > 0:
            fewer = [*kept]
            fewer.remove(item)
            search = _Search(_ordered(fewer), [each for each in fewer if each.devices == 1], nodes, work)
            if search.choices() is not None or search.unsure:
                break
            kept = fewer
    return tuple(sorted(kept, key=lambda item: (-item.mib * item.devices, item.name)))
