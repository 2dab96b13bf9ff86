"""Keeps memory for absent seats on the devices of a pool. An absent seat is a seat that now has no pod.

The preview proves that all seats fit at the same time. But pods arrive one after the other, so a badly placed pod can
take the only devices that a larger seat could use. A SeatPlan therefore contains devices for all absent seats. A pod
may take memory only if all absent seats still fit afterwards. The plan only proves that the absent seats fit. Any other
plan in which they fit is as good, so the plan changes freely and is not stored. Units: whole MiB.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tenancy.devices.allocate import MemoryRequest, best_fit
from tenancy.devices.placement import STEPS, Bin, Item, Placement
from tenancy.devices.spread import place_on_nodes
from tenancy.ledger import Seat

# The memory and the number of devices of a seat. The CPU of a seat's request is always 0.
Shape = MemoryRequest
Free = Mapping[str, Mapping[int, int]]  # the MiB that no pod holds, by node and device

# The steps of one search after an ordinary change, and of one search for a plan around a pod.
_STEPS = 20_000
_MOST_TRIED = 8
_MOST_ONE_BY_ONE = 16  # More seats than this number are planned in one search.
_MOST_REFUSED = 1_000
_SMALL = 256  # the absent seats and the devices of the pool


@dataclass(frozen=True)
class _Place:
    """The devices that are kept for one absent seat."""

    shape: Shape
    node: str
    devices: tuple[int, ...]


@dataclass(frozen=True)
class OwnSeat:
    """The absent seats that a pod takes. A pod takes one seat, or one seat of one device for each of its devices."""

    shape: Shape
    seats: int = 1


def own_seat(request: MemoryRequest, absent: Mapping[Shape, int]) -> OwnSeat | None:
    """Returns the smallest absent seats that are large enough for the request, or None if the pod has no seat."""
    alike = [each for each, n in absent.items() if n > 0 and each.count == request.count and each.mib >= request.mib]
    if alike:
        return OwnSeat(min(alike, key=lambda each: each.mib))
    alone = [each for each, n in absent.items() if n >= request.count and each.count == 1 and each.mib >= request.mib]
    return OwnSeat(min(alone, key=lambda each: each.mib), request.count) if alone else None


def taken_seats(request: MemoryRequest, named: Seat | None) -> OwnSeat:
    """Returns the seats that a pod counts as. A pod with a seat label counts as the named seat, if this seat is large
    enough. Any other pod counts as a seat of its own size.
    """
    if named is None or request.mib > named.gpumem_mib or named.devices_per_pod not in (1, request.count):
        return OwnSeat(Shape(request.mib, request.count))
    return OwnSeat(Shape(named.gpumem_mib, named.devices_per_pod), request.count // named.devices_per_pod)


def absent_seats(seats: Mapping[Shape, int], pods: Mapping[Shape, int]) -> Counter[Shape]:
    """Returns the seats of a tenant without the seats of these pods. A pod with the exact size of a seat takes its seat
    first.
    """
    left = Counter(seats)
    others: list[Shape] = []
    for shape, count in pods.items():
        exact = min(count, left[shape])
        left[shape] -= exact
        others += [shape] * (count - exact)
    for pod in sorted(others, key=lambda each: (-each.total_mib, -each.mib)):
        own = own_seat(pod, left)
        if own is not None:
            left[own.shape] -= own.seats
    return +left


class SeatPlan:
    """The devices that are kept for the absent seats of one pool.

    `kept` has the MiB of each device that are kept. `unplaced` has the absent seats for which the pool has no room.
    """

    def __init__(self) -> None:
        self.absent: Counter[Shape] = Counter()
        self.unplaced: Counter[Shape] = Counter()
        self.kept: dict[str, dict[int, int]] = {}
        self._free: dict[str, Mapping[int, int]] = {}
        self._places: dict[str, list[_Place]] = {}
        self._where: dict[Shape, Counter[str]] = {}
        self._planned: Counter[Shape] = Counter()
        self._changes: list[tuple[_Place, bool]] = []  # The places that were added (True) or removed (False).
        self._refused: set[object] = set()

    @property
    def nodes(self) -> Iterable[str]:
        """Returns the names of the pool's nodes."""
        return self._free.keys()

    def update(
        self, free: Mapping[str, Mapping[int, int] | None], absent: Mapping[Shape, int], *, thorough: bool = False
    ) -> frozenset[str]:
        """Changes the plan after nodes or the absent seats have changed. `free` has the new MiB of these nodes, or None
        for a node that no longer exists.

        With `thorough`, the search takes longer. In a large pool, only a thorough search plans the seats in `unplaced`
        again. Returns the names of all nodes on which the kept memory has changed.
        """
        self._changes.clear()
        self._refused.clear()
        for node, devices in free.items():
            if devices is None:
                self._free.pop(node, None)
            else:
                self._free[node] = devices
        self.absent = Counter(absent) if all(count > 0 for count in absent.values()) else +Counter(absent)
        for shape, planned in [*self._planned.items()]:
            for _ in range(planned - self.absent[shape]):
                self._remove(self._superfluous(shape, free))
        for node in free:
            self._clear_overfull(node)
        self._settle([node for node in free if node in self._free], thorough=thorough)
        return self._changed_nodes()

    def left(self, node: str, own: OwnSeat | None = None) -> Mapping[int, int]:
        """Returns the MiB of each device that a pod may take. The seat of the pod itself may be anywhere in
        the pool.
        """
        free, kept = self._free.get(node, {}), self.kept.get(node)
        if not kept:
            return free
        spared = self.spared(node, own)
        return {index: mib - kept.get(index, 0) + spared.get(index, 0) for index, mib in free.items()}

    def spared(self, node: str, own: OwnSeat | None) -> Mapping[int, int]:
        """Returns the kept MiB of each device that a pod with this seat may also take.

        A seat of several devices is spared at one place only, because its devices belong together.
        """
        if own is None or node not in self._where.get(own.shape, ()):
            return {}
        places = [place.devices for place in self._places[node] if place.shape == own.shape]
        if own.shape.count > 1:
            places = places[:1]
        return {index: own.shape.mib for devices in places for index in devices}

    def make_room(self, request: MemoryRequest, own: OwnSeat | None, room: Free) -> frozenset[str]:
        """Changes the plan so that the pod fits on one of the nodes in `room`, and all absent seats still fit. `room`
        has the MiB of each device that the pod could take without the plan.

        If the pool has no room for the seat of the pod, the pod goes before other absent seats. Returns the names of
        the nodes on which the kept memory has changed, or an empty result without such a plan.
        """
        size = Shape(request.mib if own is None else own.shape.mib, request.count)
        key = size, own, tuple((node, *devices.items()) for node, devices in room.items())
        if key in self._refused:
            return frozenset()
        self._changes.clear()
        tried = self._candidates(size, room)
        for move in (self._move_aside, self._search_around) if self._is_small else (self._move_aside,):
            for place in tried:
                if move(place, own):
                    return self._changed_nodes()
        if own is not None and self.unplaced[own.shape] and tried:
            self._push_aside(tried[0], own)
            return self._changed_nodes()
        if len(self._refused) > _MOST_REFUSED:
            self._refused.clear()
        self._refused.add(key)
        return frozenset()

    def _add(self, place: _Place) -> None:
        self._places.setdefault(place.node, []).append(place)
        self._where.setdefault(place.shape, Counter())[place.node] += 1
        self._planned[place.shape] += 1
        kept = self.kept.setdefault(place.node, {})
        for index in place.devices:
            kept[index] = kept.get(index, 0) + place.shape.mib
        self._changes.append((place, True))

    def _remove(self, place: _Place) -> None:
        places, where, kept = self._places[place.node], self._where[place.shape], self.kept[place.node]
        places.remove(place)
        where[place.node] -= 1
        self._planned[place.shape] -= 1
        for index in place.devices:
            kept[index] -= place.shape.mib
        if not where[place.node]:
            del where[place.node]
        if not where:
            del self._where[place.shape], self._planned[place.shape]
        if not places:
            del self._places[place.node], self.kept[place.node]
        self._changes.append((place, False))

    def _undo(self, since: int) -> None:
        for place, added in reversed(self._changes[since:]):
            (self._remove if added else self._add)(place)
        del self._changes[since:]

    def _changed_nodes(self) -> frozenset[str]:
        return frozenset(place.node for place, _ in self._changes)

    def _superfluous(self, shape: Shape, changed: Iterable[str]) -> _Place:
        """Returns the place that a pod most likely took. This place is on a device that is too full."""
        where = self._where[shape]
        nodes = [node for node in changed if node in where] or [next(iter(where))]
        places = [place for node in nodes for place in self._places[node] if place.shape == shape]
        return min(places, key=lambda place: min(self._slack(place.node, index) for index in place.devices))

    def _slack(self, node: str, index: int) -> int:
        return self._free.get(node, {}).get(index, -1) - self.kept.get(node, {}).get(index, 0)

    def _clear_overfull(self, node: str) -> None:
        """Removes from the plan the seats that no longer fit on a node. On each device, the smallest seats are removed
        first.
        """
        for place in sorted(self._places.get(node, ()), key=lambda each: (each.shape.mib, each.devices)):
            if any(self._slack(node, index) < 0 for index in place.devices):
                self._remove(place)

    def _settle(self, near: Sequence[str], *, thorough: bool) -> None:
        """Plans the absent seats that have no place. If the absent seats without a place do not fit, plans all absent
        seats again.
        """
        if dict.__eq__(self.absent, self._planned):  # All counts are above 0, and this comparison hashes no shape.
            self.unplaced.clear()
            return
        missing = self.absent - self._planned
        known = Counter() if thorough or self._is_small else self.unplaced & missing
        pending = _largest_first((missing - known).elements())
        failed = [] if self._seat_all(pending, near) else self._still_missing(pending, thorough=thorough)
        self.unplaced = known + Counter(failed)
        for shape in [*self.unplaced]:
            while self.unplaced[shape] > 0 and self._seat(shape, near):
                self.unplaced[shape] -= 1
        self.unplaced = +self.unplaced

    @property
    def _is_small(self) -> bool:
        return self.absent.total() + sum(map(len, self._free.values())) <= _SMALL

    def _seat_all(self, shapes: Sequence[Shape], near: Sequence[str]) -> bool:
        since = len(self._changes)
        if len(shapes) <= _MOST_ONE_BY_ONE and all(self._seat(s, near) or self._seat(s, self._free) for s in shapes):
            return True
        self._undo(since)
        return False

    def _still_missing(self, pending: Sequence[Shape], *, thorough: bool) -> list[Shape]:
        steps = STEPS if thorough else _STEPS
        slack = {node: self.left(node) for node in self._free}
        if self._plan(pending, slack, steps):
            return []
        everyone = [*self._planned.elements(), *pending]
        if self._plan(everyone, self._free, steps, instead_of=[each for p in self._places.values() for each in p]):
            return []
        failed: list[Shape] = []
        for shape, count in Counter(pending).items():
            low, high = 0, count
            while low < high:
                middle = (low + high + 1) // 2
                slack = {node: self.left(node) for node in self._free}
                fits = self._plan([shape] * (middle - low), slack, _STEPS)
                low, high = (middle, high) if fits else (low, middle - 1)
            failed += [shape] * (count - low)
        return failed

    def _seat(self, shape: Shape, nodes: Iterable[str]) -> bool:
        found = [(choice.cost, node, choice) for node in nodes if (choice := best_fit(shape, self.left(node)))]
        if not found:
            return False
        _, node, choice = min(found, key=lambda each: each[:2])
        self._add(_Place(shape, node, choice.indices))
        return True

    def _plan(self, shapes: Sequence[Shape], free: Free, steps: int, *, instead_of: Sequence[_Place] = ()) -> bool:
        """Plans all these seats with a complete search. If the search fails, the plan stays unchanged and the result is
        False.
        """
        places = _searched(shapes, free, steps)
        if places is None:
            return False
        for place in instead_of:
            self._remove(place)
        for place in places:
            self._add(place)
        return True

    def _candidates(self, size: Shape, room: Free) -> list[_Place]:
        """Returns different places for the pod. The places with the least kept memory that the pod needs come first."""
        unlike: dict[object, tuple[int, int, str, tuple[int, ...]]] = {}
        for node, devices in room.items():
            lacks = {index: size.mib - self._slack(node, index) for index, mib in devices.items() if mib >= size.mib}
            for chosen in _choices(sorted(lacks, key=lambda index: (lacks[index], index)), size.count):
                lack, free = sum(max(lacks[index], 0) for index in chosen), sum(devices[index] for index in chosen)
                kept = sorted(
                    (place.shape.mib, place.shape.count)
                    for place in self._places.get(node, ())
                    if not {*place.devices}.isdisjoint(chosen)
                )
                unlike.setdefault((lack, free, *kept), (lack, free, node, chosen))
        return [_Place(size, node, chosen) for *_, node, chosen in sorted(unlike.values())[:_MOST_TRIED]]

    def _move_aside(self, pod: _Place, own: OwnSeat | None) -> bool:
        """Plans the seats that are in the pod's way on other devices. If the search for other devices fails, the plan
        stays unchanged and the result is False.
        """
        since = len(self._changes)
        for place in self._released(own, pod.node):
            self._remove(place)
        with self._taken(pod):
            before = +self._planned
            self._clear_overfull(pod.node)
            fits = all(self._seat(shape, self._free) for shape in _largest_first((before - self._planned).elements()))
        if not fits:
            self._undo(since)
            return False
        self._keep_for(own, pod)
        return True

    def _search_around(self, pod: _Place, own: OwnSeat | None) -> bool:
        """Plans all absent seats again in the memory that the pod leaves. If this plan fails, changes nothing and
        returns False.
        """
        since = len(self._changes)
        for place in self._released(own, pod.node):
            self._remove(place)
        places = [each for places in self._places.values() for each in places]
        with self._taken(pod):
            fits = self._plan([each.shape for each in places], self._free, _STEPS, instead_of=places)
        if not fits:
            self._undo(since)
            return False
        self._keep_for(own, pod)
        return True

    def _push_aside(self, pod: _Place, own: OwnSeat) -> None:
        for place in self._released(own, pod.node):
            self._remove(place)
        with self._taken(pod):
            self._clear_overfull(pod.node)
        self._keep_for(own, pod)
        self.unplaced = self.absent - self._planned

    def _released(self, own: OwnSeat | None, near: str) -> list[_Place]:
        if own is None or own.shape not in self._where:
            return []
        nodes = sorted(self._where[own.shape], key=lambda name: name != near)[: own.seats]
        places = [place for node in nodes for place in self._places[node] if place.shape == own.shape]
        return places[: own.seats]

    @contextmanager
    def _taken(self, pod: _Place) -> Iterator[None]:
        whole = self._free[pod.node]
        self._free[pod.node] = {i: mib - pod.shape.mib * (i in pod.devices) for i, mib in whole.items()}
        try:
            yield
        finally:
            self._free[pod.node] = whole

    def _keep_for(self, own: OwnSeat | None, pod: _Place) -> None:
        if own is not None:
            parts = [pod.devices] if own.seats == 1 else [(index,) for index in pod.devices]
            for devices in parts:
                self._add(_Place(own.shape, pod.node, devices))


def _largest_first(shapes: Iterable[Shape]) -> list[Shape]:
    return sorted(shapes, key=lambda shape: (-shape.total_mib, -shape.mib))


def _choices(ordered: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield from ((index,) for index in ordered)
    elif len(ordered) >= count:
        yield tuple(sorted(ordered[:count]))


def _searched(shapes: Sequence[Shape], free: Free, steps: int) -> list[_Place] | None:
    # Each item has its own name, so that the result shows which devices belong to one seat.
    items = [Item(str(number), shape.mib, shape.count) for number, shape in enumerate(shapes)]
    keys = [(node, index) for node, devices in free.items() for index in devices]
    nodes = [[Bin("", max(mib, 0)) for mib in devices.values()] for devices in free.values()]
    found = place_on_nodes(items, nodes, steps=steps)
    if not isinstance(found, Placement):
        return None
    held: dict[int, list[tuple[str, int]]] = {}
    for key, (_, together) in zip(keys, found.assignments, strict=True):
        for item in together:
            held.setdefault(int(item.name), []).append(key)
    return [_Place(shapes[n], at[0][0], tuple(sorted(index for _, index in at))) for n, at in held.items()]
