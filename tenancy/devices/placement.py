"""Decides exactly whether all items fit on the devices at the same time. Each item must be on one device.

A node can have enough free memory in total, while each of its devices has too little (docs/records/0003). The first-fit
method can miss a placement that exists. The module first compares sums, and then searches depth-first through all
placements, with a limit of steps. Units: MiB.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

# The maximum number of steps of the search. In each step, the search tries one free space. All steps together take one
# to two seconds. If the items do not fit, the search for a smaller set that does not fit uses a tenth of this limit.
STEPS = 1_000_000


@dataclass(frozen=True)
class Item:
    """A promise of at least 1 MiB on one device, or on each of several devices (spread.py).

    Items for the replicas of one workload have the same name.
    """

    name: str
    mib: int
    devices: int = 1

    @property
    def amount(self) -> str:
        """Returns the amount for messages, for instance `20000` or `20000 on 2 devices`."""
        return f"{self.mib} on {self.devices} devices" if self.devices > 1 else f"{self.mib}"


@dataclass(frozen=True)
class Bin:
    name: str
    mib: int


@dataclass(frozen=True)
class Placement:
    """A placement of all items: each device with its items, in the order in which the caller listed the devices."""

    assignments: tuple[tuple[Bin, tuple[Item, ...]], ...]


@dataclass(frozen=True)
class Impossible:
    """A set of `items` that cannot all be placed.

    Whichever item is removed, the remaining items fit, unless the search ran out of steps or had tried all arrangements
    of pods with several devices. In the second case, `items` has all items.
    """

    items: tuple[Item, ...]
    reason: str


class OutOfStepsError(Exception):
    """Raised when a search has used all its steps."""


class StepsLeft:
    """The number of steps that a search may still use."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def take(self, steps: int) -> None:
        """Uses up steps. Raises OutOfStepsError."""
        self.left -= steps
        if self.left < 0:
            raise OutOfStepsError


def fits_on_equal_devices(sizes: Mapping[int, int], device_mib: int, devices: int) -> bool:
    """Returns True if the best-fit method, starting with the largest items, places all items on equal devices.

    If the result is False, another method may still place all items. `sizes` has the number of items of each size.
    """
    if sum(size * count for size, count in sizes.items()) > device_mib * devices:
        return False
    spaces = [device_mib] * devices
    for size, count in sorted(sizes.items(), reverse=True):
        for _ in range(count):
            at = bisect_left(spaces, size)
            if at == len(spaces):
                return False
            insort(spaces, spaces.pop(at) - size)
    return True


def place(items: Sequence[Item], devices: Sequence[Bin], *, steps: int = STEPS) -> Placement | Impossible | None:
    """Places every item on one device so that no device holds more than its MiB.

    If a placement is impossible, returns the smallest set of items that was proved not to fit. If the steps are not
    enough, returns None: a placement may exist.
    """
    ordered = sorted(items, key=lambda item: (-item.mib, item.name))
    sizes = [device.mib for device in devices]
    budget = StepsLeft(steps)
    crowd = _crowd(ordered, sizes)
    try:
        choices = _choices(ordered, sizes, budget) if crowd is None else None
    except OutOfStepsError:
        return None
    if choices is not None:
        return _replay(ordered, devices, choices)
    smallest = _minimal(crowd or ordered, sizes, StepsLeft(steps // 10))
    return Impossible(tuple(smallest), _reason(smallest, sizes))


def fits(items: Sequence[Item], sizes: Sequence[int], work: StepsLeft) -> bool:
    """Returns True if every item fits on a device. Raises OutOfStepsError."""
    work.take(len(items) + len(sizes))
    ordered = sorted(items, key=lambda item: -item.mib)
    return _crowd(ordered, sizes) is None and _choices(ordered, sizes, work) is not None


def _room(size: int, free: Counter[int]) -> int:
    return sum(space // size * count for space, count in free.items())


def _crowd(ordered: Sequence[Item], sizes: Sequence[int]) -> Sequence[Item] | None:
    """Returns the smallest set of items that is too large by its number of items or by its sum.

    The set has too many items with at least a certain size, or too many MiB in total.
    """
    free = Counter(sizes)
    crowds = []  # the first and the last number of the items of each set
    for size, count in {item.mib: count for count, item in enumerate(ordered, 1)}.items():
        room = _room(size, free)
        if count > room:
            crowds.append((count - room - 1, count))
    total = sum(sizes)
    sums = accumulate(item.mib for item in ordered)
    over = next((count for count, mib in enumerate(sums, 1) if mib > total), None)
    if over is not None:
        crowds.append((0, over))
    smallest = min(crowds, key=lambda ends: ends[1] - ends[0], default=None)
    return None if smallest is None else ordered[slice(*smallest)]


def _choices(ordered: Sequence[Item], sizes: Sequence[int], steps: StepsLeft) -> list[int] | None:
    needs = [item.mib for item in ordered]
    return _best_fit(needs, sizes) or _search(needs, sizes, steps)


def _best_fit(needs: Sequence[int], sizes: Sequence[int]) -> list[int] | None:
    """Places the `needs` (in MiB) one after another, each on the device with the least free space that suffices.

    This method needs no search and succeeds on most inputs.
    """
    free = sorted(sizes)
    choices = []
    for need in needs:
        at = bisect_left(free, need)
        if at == len(free):
            return None
        space = free.pop(at)
        insort(free, space - need)
        choices.append(space)
    return choices


def _search(needs: Sequence[int], sizes: Sequence[int], steps: StepsLeft) -> list[int] | None:
    """Searches depth-first for a device for each need, starting with the largest need.

    Among devices with equal free space, the search tries only one. A state that has failed is not entered again. The
    search ignores free space that is smaller than the smallest need.
    """
    free = Counter(size for size in sizes if size)
    left = [*accumulate(reversed(needs), initial=0)][::-1]
    failed: set[tuple[int, frozenset[tuple[int, int]]]] = set()
    choices: list[int] = []
    stack: list[tuple[tuple[int, frozenset[tuple[int, int]]], Iterator[int]]] = []
    while len(choices) < len(needs):
        at = len(choices)
        if len(stack) == at:
            steps.take(len(free) + 1)
            state = (at, frozenset(free.items()))
            usable = sum(space * count for space, count in free.items() if space >= needs[-1])
            open_ = state not in failed and left[at] <= usable
            stack.append((state, _spaces(needs[at], free) if open_ else iter(())))
        state, spaces = stack[-1]
        space = next(spaces, None)
        if space is not None:
            _swap(free, space, space - needs[at])
            choices.append(space)
            continue
        failed.add(state)
        stack.pop()
        if not choices:
            return None
        undone = choices.pop()
        _swap(free, undone - needs[at - 1], undone)
    return choices


def _spaces(need: int, free: Counter[int]) -> Iterator[int]:
    """Returns the different amounts of free space to try, the smallest first.

    If one free space has exactly the needed size, the search tries no other. Any other item in this space could swap
    places with this item.
    """
    return iter((need,) if need in free else sorted(space for space in free if space > need))


def _swap(free: Counter[int], gone: int, come: int) -> None:
    """Changes the free space of one device from `gone` to `come`. A free space that no device has is removed from
    `free`.
    """
    for space, change in ((gone, -1), (come, 1)):
        if space:
            free[space] += change
            if not free[space]:
                del free[space]


def _replay(ordered: Sequence[Item], devices: Sequence[Bin], choices: Sequence[int]) -> Placement:
    by_space: dict[int, list[int]] = {}
    for index in reversed(range(len(devices))):
        by_space.setdefault(devices[index].mib, []).append(index)
    held: list[list[Item]] = [[] for _ in devices]
    for item, space in zip(ordered, choices, strict=True):
        index = by_space[space].pop()
        held[index].append(item)
        by_space.setdefault(space - item.mib, []).append(index)
    return Placement(tuple((device, tuple(lying)) for device, lying in zip(devices, held, strict=True)))


def _minimal(items: Sequence[Item], sizes: Sequence[int], steps: StepsLeft) -> list[Item]:
    kept = list(items)
    for size in sorted({item.mib for item in items}):
        while fewer := _without_one(kept, size):
            try:
                steps.take(len(fewer) * len(sizes))
                if _crowd(fewer, sizes) is None and _choices(fewer, sizes, steps) is not None:
                    break
            except OutOfStepsError:
                return kept
            kept = fewer
    return kept


def _without_one(items: list[Item], size: int) -> list[Item] | None:
    """Returns the items without one item of that size, or None if no item has that size."""
    index = next((index for index, item in enumerate(items) if item.mib == size), None)
    return None if index is None else items[:index] + items[index + 1 :]


def _reason(items: Sequence[Item], sizes: Sequence[int]) -> str:
    total = sum(item.mib for item in items)
    if total > sum(sizes):
        return f"they need {total} MiB; all devices together have {sum(sizes)}"
    least = min(item.mib for item in items)
    room = _room(least, Counter(sizes))
    if len(items) > room and least * 2 > max(sizes):
        devices = "a device" if len(items) == 1 else f"{len(items)} devices"
        return f"{len(items)} of {least} MiB or more need {devices} with {least} free; only {room} have it"
    if len(items) > room:
        return f"{len(items)} of {least} MiB or more; the devices have room for {room} of that size"
    return f"they need {total} of {sum(sizes)} MiB, but no arrangement puts each on one device; all were tried"
