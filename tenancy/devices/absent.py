"""Keeps memory for absent seats on the devices of a pool. An absent seat is a seat that now has no pod.

The preview proves that all seats fit at the same time. But pods arrive one after the other, so a badly placed pod can
take the only devices that a larger seat could use. A pod may therefore take memory only if all absent seats still fit
afterwards. A Seating proves that they do. Any other seating is as good, so it changes freely and is not stored. Units:
whole MiB.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

from tenancy.devices.allocate import MemoryRequest, best_fit
from tenancy.devices.placement import STEPS, Bin, Item, Placement
from tenancy.devices.spread import place_on_nodes
from tenancy.ledger import Seat

# The memory and the number of devices of a seat. The CPU of a seat's request is always 0.
Shape = MemoryRequest
Free = Mapping[str, Mapping[int, int]]  # the MiB that no pod holds, by node and device

Devices = tuple[int, ...]

# The steps of a search for the devices of all absent seats. The first search of a pool has as many as the preview's.
_STEPS = 20_000
_MOST_TRIED = 8  # the places for one pod, of which each gets a part of the steps


@dataclass(frozen=True)
class TakenSeats:
    """The seats that a pod takes. A pod takes one seat, or one seat of one device for each of its devices."""

    shape: Shape
    seats: int = 1

    @property
    def counted(self) -> Counter[Shape]:
        return Counter({self.shape: self.seats})


def smallest_seats(request: MemoryRequest, absent: Mapping[Shape, int]) -> TakenSeats | None:
    """Returns the smallest absent seats that are large enough for the request, or None if the pod has no seat."""
    alike = [each for each, n in absent.items() if n > 0 and each.count == request.count and each.mib >= request.mib]
    if alike:
        return TakenSeats(min(alike, key=lambda each: each.mib))
    alone = [each for each, n in absent.items() if n >= request.count and each.count == 1 and each.mib >= request.mib]
    return TakenSeats(min(alone, key=lambda each: each.mib), request.count) if alone else None


def shape_of(seat: Seat) -> Shape:
    return Shape(seat.gpumem_mib, seat.devices_per_pod)


def seats_by_tenant(seats: Iterable[Seat], pool: str) -> dict[str, Counter[Shape]]:
    """Returns the seats of each tenant in the pool."""
    found: dict[str, Counter[Shape]] = {}
    for seat in seats:
        if seat.pool == pool and seat.gpumem_mib > 0 and seat.replicas > 0:
            found.setdefault(seat.tenant, Counter())[shape_of(seat)] += seat.replicas
    return found


def present_seats(
    seats: Iterable[Seat], pool: str, pods: Iterable[tuple[str, MemoryRequest, str]]
) -> dict[str, Counter[Shape]]:
    """Returns the seats as which the pods in the pool count, by tenant.

    `pods` has the tenant, the request and the seat label of each pod.
    """
    named = {(seat.tenant, seat.name): seat for seat in seats}
    found: dict[str, Counter[Shape]] = {}
    alike = Counter((tenant, request.mib, request.count, label) for tenant, request, label in pods)
    for (tenant, mib, devices, label), count in alike.items():
        taken = taken_seats(Shape(mib, devices), named.get((tenant, label)), pool)
        found.setdefault(tenant, Counter())[taken.shape] += count * taken.seats
    return found


def taken_seats(request: MemoryRequest, named: Seat | None, pool: str) -> TakenSeats:
    """Returns the seats that a pod in this pool counts as. A pod with a seat label counts as the named seat, if this
    seat is in the pool and large enough. Any other pod counts as a seat of its own size.
    """
    is_its = named is not None and named.pool == pool and named.gpumem_mib >= request.mib
    if named is None or not is_its or named.devices_per_pod not in (1, request.count):
        return TakenSeats(Shape(request.mib, request.count))
    return TakenSeats(shape_of(named), request.count // named.devices_per_pod)


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
        taken = smallest_seats(pod, left)
        if taken is not None:
            left[taken.shape] -= taken.seats
    return +left


@dataclass(frozen=True)
class Place:
    """Devices of one node."""

    node: str
    devices: Devices


@dataclass(frozen=True)
class Seating:
    """Devices for the absent seats of one pool: a proof that these seats fit.

    `places` has the seats on each node, and the devices of each seat. `unplaced` has the absent seats for which the
    pool has no room.
    """

    places: Mapping[str, Sequence[tuple[Shape, Devices]]] = field(default_factory=dict)
    unplaced: Mapping[Shape, int] = field(default_factory=dict)

    def needed_mib(self, node: str, taken: TakenSeats | None = None) -> Mapping[int, int]:
        """Returns the MiB of each device of the node that absent seats need, without one such taken seat on a device.

        A seat of several devices is at one place only, because its devices belong together.
        """
        places = self.places.get(node, ())
        found: dict[int, int] = {}
        for shape, devices in places:
            for index in devices:
                found[index] = found.get(index, 0) + shape.mib
        if taken is not None:
            alike = [devices for shape, devices in places if shape == taken.shape]
            for index in {index for devices in (alike[:1] if taken.shape.count > 1 else alike) for index in devices}:
                found[index] -= taken.shape.mib
        return found


def seat_all(absent: Mapping[Shape, int], free: Free, last: Seating, *, steps: int = _STEPS) -> Seating:
    """Returns a seating of the absent seats, from the pool's last seating and a search.

    A complete last seating, of which the next pod has taken a place, leaves a complete seating. So a search is
    necessary only if seats have lost their places.
    """
    near = _Repair(absent, free, last).run()
    if not near.unplaced:
        return near
    return _searched(absent, free, steps if last.places else STEPS) or near


def place_beside(
    request: MemoryRequest, absent: Mapping[Shape, int], free: Free, room: Free, last: Seating
) -> Place | None:
    """Returns a place in `room` that the pod can take so that all these absent seats still fit, or None.

    `room` has the MiB of each device that the pod could take without the absent seats.
    """
    for place in islice(_places(request, free, room, last), _MOST_TRIED):
        less = {i: mib - request.mib * (i in place.devices) for i, mib in free[place.node].items()}
        if not seat_all(absent, {**free, place.node: less}, last, steps=_STEPS // _MOST_TRIED).unplaced:
            return place
    return None


def _places(request: MemoryRequest, free: Free, room: Free, last: Seating) -> Iterator[Place]:
    """Yields unlike places for the request. Places where the pod needs the least memory of absent seats come first."""
    unlike: dict[object, tuple[int, int, str, Devices]] = {}
    for node, devices in room.items():
        needed = last.needed_mib(node)
        lacks = {i: request.mib - free[node][i] + needed.get(i, 0) for i, mib in devices.items() if mib >= request.mib}
        for chosen in combinations(sorted(lacks, key=lambda index: (lacks[index], index)), request.count):
            lack, size = sum(max(lacks[index], 0) for index in chosen), sum(devices[index] for index in chosen)
            seats = sorted(
                (shape.mib, shape.count)
                for shape, indices in last.places.get(node, ())
                if not {*indices}.isdisjoint(chosen)
            )
            unlike.setdefault((lack, size, *seats), (lack, size, node, tuple(sorted(chosen))))
    for *_, node, chosen in sorted(unlike.values()):
        yield Place(node, chosen)


class _Repair:
    """Gives the absent seats their last places where they are free, and the other seats the places that are left."""

    def __init__(self, absent: Mapping[Shape, int], free: Free, last: Seating) -> None:
        self._absent = Counter(absent)
        self._places = {node: [*places] for node, places in last.places.items() if node in free}
        self._left = {node: {**devices} for node, devices in free.items()}
        self._missing = Counter(absent)
        for node, places in self._places.items():
            for shape, devices in places:
                self._missing[shape] -= 1
                self._take(shape, node, devices)

    def run(self) -> Seating:
        for shape in [shape for shape, count in self._missing.items() if count < 0]:
            while self._missing[shape] < 0:
                self._drop(*self._fullest(shape))
        for node in self._places:
            for place in sorted(self._places[node], key=lambda place: (place[0].mib, place[1])):
                if self._least(node, place[1]) < 0:
                    self._drop(node, place)
        for shape in sorted(+self._missing, key=lambda shape: (-shape.total_mib, -shape.mib)):
            while self._missing[shape] and self._add(shape):
                self._missing[shape] -= 1
        return Seating({node: places for node, places in self._places.items() if places}, +self._missing)

    def _take(self, shape: Shape, node: str, devices: Devices, sign: int = 1) -> None:
        left = self._left[node]
        for index in devices:
            left[index] = left.get(index, 0) - sign * shape.mib

    def _least(self, node: str, devices: Devices) -> int:
        return min(self._left[node][index] for index in devices)

    def _fullest(self, shape: Shape) -> tuple[str, tuple[Shape, Devices]]:
        """Returns the place of such a seat that a pod most likely took. It is on a device that is too full."""
        found = [(self._least(n, p[1]), n, p) for n, places in self._places.items() for p in places if p[0] == shape]
        _, node, place = min(found, key=lambda each: each[:2])
        return node, place

    def _drop(self, node: str, place: tuple[Shape, Devices]) -> None:
        self._places[node].remove(place)
        self._take(place[0], node, place[1], -1)
        self._missing[place[0]] += 1

    def _add(self, shape: Shape) -> bool:
        ways = [(way.cost, node, way.indices) for node, left in self._left.items() if (way := best_fit(shape, left))]
        if not ways:
            return False
        _, node, devices = min(ways)
        self._places.setdefault(node, []).append((shape, devices))
        self._take(shape, node, devices)
        return True


def _searched(absent: Mapping[Shape, int], free: Free, steps: int) -> Seating | None:
    shapes = [*Counter(absent).elements()]
    # Each item has its own name, so that the placement shows which devices belong to one seat.
    items = [Item(str(number), shape.mib, shape.count) for number, shape in enumerate(shapes)]
    nodes = [[Bin("", max(mib, 0)) for mib in devices.values()] for devices in free.values()]
    found = place_on_nodes(items, nodes, steps=steps)
    if not isinstance(found, Placement):
        return None
    keys = [(node, index) for node, devices in free.items() for index in devices]
    held: dict[tuple[str, int], list[int]] = {}
    for (node, index), (_, together) in zip(keys, found.assignments, strict=True):
        for item in together:
            held.setdefault((node, int(item.name)), []).append(index)
    places: dict[str, list[tuple[Shape, Devices]]] = {}
    for (node, number), indices in held.items():
        places.setdefault(node, []).append((shapes[number], tuple(indices)))
    return Seating(places)
