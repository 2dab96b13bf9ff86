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


def smallest_seats(request: MemoryRequest, absent: Mapping[Shape, int]) -> Counter[Shape]:
    """Returns the smallest absent seats that are large enough for the request, or none if the pod has no seat.

    A pod takes one seat, or one seat of one device for each of its devices.
    """
    for count, seats in ((request.count, 1), (1, request.count)):
        fitting = [each for each, n in absent.items() if n >= seats and each.count == count and each.mib >= request.mib]
        if fitting:
            return Counter({min(fitting, key=lambda each: each.mib): seats})
    return Counter()


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
        for shape, taken in taken_seats(Shape(mib, devices), named.get((tenant, label)), pool).items():
            found.setdefault(tenant, Counter())[shape] += count * taken
    return found


def taken_seats(request: MemoryRequest, named: Seat | None, pool: str) -> Counter[Shape]:
    """Returns the seats that a pod in this pool counts as. A pod with a seat label counts as the named seat, if this
    seat is in the pool and large enough. Any other pod counts as a seat of its own size.
    """
    is_its = named is not None and named.pool == pool and named.gpumem_mib >= request.mib
    if named is None or not is_its or named.devices_per_pod not in (1, request.count):
        return Counter({Shape(request.mib, request.count): 1})
    return Counter({shape_of(named): request.count // named.devices_per_pod})


def absent_seats(seats: Mapping[Shape, int], pods: Mapping[Shape, int]) -> Counter[Shape]:
    """Returns the seats of a tenant without the seats of these pods. A pod with the exact size of a seat takes its seat
    first.
    """
    exact = Counter(seats) & Counter(pods)
    left = Counter(seats) - exact
    for pod in sorted((Counter(pods) - exact).elements(), key=lambda each: (-each.total_mib, -each.mib)):
        left -= smallest_seats(pod, left)
    return left


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

    def needed_mib(self, node: str, taken: Iterable[Shape] = ()) -> Mapping[int, int]:
        """Returns the MiB of each device of the node that absent seats need, without one such taken seat on a device.

        A seat of several devices is at one place only, because its devices belong together.
        """
        places = self.places.get(node, ())
        found: dict[int, int] = {}
        for shape, devices in places:
            for index in devices:
                found[index] = found.get(index, 0) + shape.mib
        for each in taken:
            alike = [devices for shape, devices in places if shape == each]
            for index in {index for devices in (alike[:1] if each.count > 1 else alike) for index in devices}:
                found[index] -= each.mib
        return found


def seat_all(absent: Mapping[Shape, int], free: Free, last: Seating, *, steps: int = _STEPS) -> Seating:
    """Returns a seating of the absent seats, from the pool's last seating and a search.

    A complete last seating, of which the next pod has taken a place, leaves a complete seating. So a search is
    necessary only if seats have lost their places.
    """
    near = _seated(absent, free, last)
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


def _seated(absent: Mapping[Shape, int], free: Free, last: Seating) -> Seating:
    """Gives the absent seats their last places where they are free, and the other seats the places that are left.

    The next pod has most likely taken a place on a device that is now too full, so these places come last.
    """
    missing = Counter(absent)
    left = {node: {**devices} for node, devices in free.items()}
    places: dict[str, list[tuple[Shape, Devices]]] = {}

    def seat(shape: Shape, node: str, devices: Devices) -> None:
        for index in devices:
            left[node][index] -= shape.mib
        missing[shape] -= 1
        places.setdefault(node, []).append((shape, devices))

    for _, node, shape, devices in sorted(_last_places(free, last), key=lambda each: each[0]):
        if missing[shape] > 0 and all(left[node].get(index, 0) >= shape.mib for index in devices):
            seat(shape, node, devices)
    for shape in sorted(+missing, key=lambda shape: (-shape.total_mib, -shape.mib)):
        while missing[shape]:
            ways = [(way.cost, node, way.indices) for node, mib in left.items() if (way := best_fit(shape, mib))]
            if not ways:
                break
            seat(shape, *min(ways)[1:])
    return Seating(places, +missing)


def _last_places(free: Free, last: Seating) -> Iterator[tuple[tuple[int, int], str, Shape, Devices]]:
    """Yields the last places with a key to sort them: the emptiest devices first, and there the largest seats."""
    for node, places in last.places.items():
        if node in free:
            needed = last.needed_mib(node)
            for shape, devices in places:
                lack = max(needed[index] - free[node].get(index, 0) for index in devices)
                yield (lack, -shape.mib), node, shape, devices


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
