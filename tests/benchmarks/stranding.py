"""Compares several ways to choose a pod's devices: how often does a seat find no device? Run `python -m
tests.benchmarks.stranding`. Pods arrive in random orders, end and return.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from random import Random

from tenancy.devices.absent import Seating, place_beside, seat_all, smallest_seats
from tenancy.devices.allocate import MemoryRequest, best_fit
from tenancy.devices.placement import Bin, Item, Placement
from tenancy.devices.spread import place_on_nodes
from tests.support.seat_orders import Stack, Wanted, drawn

Place = tuple[int, tuple[int, ...]]
_MOST_ORDERS = 120


class Today:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def forget(self) -> None: ...

    def place(self, pod: Wanted, *, seated: bool) -> Place | None:
        del seated
        return self.cheapest(pod, self.stack.free())

    def cheapest(self, pod: Wanted, nodes: Sequence[Sequence[int]]) -> Place | None:
        request = MemoryRequest(pod.mib, pod.devices)
        found = [
            (c.cost, n, c.indices) for n, node in enumerate(nodes) if (c := best_fit(request, dict(enumerate(node))))
        ]
        return min(found)[1:] if found else None


class InTheLedger(Today):
    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.planned = [*seating(stack)]

    def place(self, pod: Wanted, *, seated: bool) -> Place | None:
        taken = Counter(place for key, place in self.stack.places.items() if isinstance(key, int))
        kept = []
        for seat, (number, chosen) in self.planned:
            if taken[seat, number, chosen]:
                taken[seat, number, chosen] -= 1
            else:
                kept.append((seat, number, chosen))
        if seated:
            ways = [(number, chosen) for seat, number, chosen in kept if seat == pod]
            free = self.stack.free()
            return min(ways, key=lambda way: sum(free[way[0]][i] for i in way[1]), default=None)
        left = self.stack.free()
        for seat, number, chosen in kept:
            for index in chosen:
                left[number][index] -= seat.mib
        return self.cheapest(pod, left)


class LookAhead(Today):
    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.forget()

    def forget(self) -> None:
        self.seating = Seating()

    def place(self, pod: Wanted, *, seated: bool) -> Place | None:
        request = MemoryRequest(pod.mib, pod.devices)
        absent = Counter(MemoryRequest(seat.mib, seat.devices) for seat in self.stack.absent())
        free = {str(number): dict(enumerate(node)) for number, node in enumerate(self.stack.free())}
        self.seating = seat_all(absent, free, self.seating)
        taken, left = smallest_seats(request, absent) if seated else Counter[MemoryRequest](), []
        for node, devices in free.items():
            needed = self.seating.needed_mib(node, taken)
            left.append([mib - needed.get(index, 0) for index, mib in devices.items()])
        if found := self.cheapest(pod, left):
            return found
        beside = place_beside(request, absent - taken, free, free, self.seating)
        return (int(beside.node), beside.devices) if beside else None


COLUMNS = (
    "way",
    "stacks with a stranding order",
    "stranding orders",
    "seats stranded in histories",
    "pods without a seat placed",
    "CPU ms for each pod",
)
WAYS: dict[str, Callable[[Stack], Today]] = {
    "best fit, as until now": Today,
    "plan in the ledger": InTheLedger,
    "look ahead": LookAhead,
}


def seating(stack: Stack) -> Iterator[tuple[Wanted, Place]]:
    items = [Item(str(number), seat.mib, seat.devices) for number, seat in enumerate(stack.seats)]
    nodes = [[Bin(f"{number}", mib) for mib in node] for number, node in enumerate(stack.nodes)]
    found = place_on_nodes(items, nodes)
    if not isinstance(found, Placement):
        raise TypeError("the brute force found a seating")
    keys = [(number, index) for number, node in enumerate(stack.nodes) for index in range(len(node))]
    held: dict[int, list[tuple[int, int]]] = {}
    for key, (_, together) in zip(keys, found.assignments, strict=True):
        for item in together:
            held.setdefault(int(item.name), []).append(key)
    for number, at in held.items():
        yield stack.seats[number], (at[0][0], tuple(index for _, index in at))


def arrivals(stack: Stack, way: Callable[[Stack], Today], dice: Random) -> Iterator[bool]:
    orders = [*permutations(range(len(stack.seats)))]
    for order in dice.sample(orders, min(len(orders), _MOST_ORDERS)):
        stack.places.clear()
        chooser = way(stack)
        stranded = False
        for seat in order:
            place = chooser.place(stack.seats[seat], seated=True)
            if place is None:
                stranded = True
                break
            stack.places[seat] = (stack.seats[seat], *place)
        yield stranded


def history(stack: Stack, way: Callable[[Stack], Today], dice: Random, acts: int = 40) -> Counter[str]:
    stack.places.clear()
    chooser, counts = way(stack), Counter[str]()
    for number in range(acts):
        act = dice.random()
        absent = [seat for seat in range(len(stack.seats)) if seat not in stack.places]
        if act < 0.45 and absent:
            seat = dice.choice(absent)
            place = chooser.place(stack.seats[seat], seated=True)
            counts["seats"] += 1
            counts["stranded"] += place is None
            if place is not None:
                stack.places[seat] = (stack.seats[seat], *place)
        elif act < 0.8 and stack.places:
            del stack.places[dice.choice(sorted(stack.places, key=str))]
        elif act < 0.97:
            pod = Wanted(dice.randint(1, 6))
            place = chooser.place(pod, seated=False)
            counts["guests"] += 1
            if place is not None:
                counts["guests placed"] += 1
                stack.places[f"guest-{number}"] = (pod, *place)
        else:
            chooser.forget()
        counts["broken"] += not stack.is_kept()
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.stranding", description=__doc__)
    parser.add_argument("--stacks", type=int, default=919)
    arguments = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---|---|---|---|---|---|")
    for name, way in WAYS.items():
        print(f"| {name} | {' | '.join(row(way, arguments.stacks))} |", flush=True)


def row(way: Callable[[Stack], Today], count: int) -> Sequence[str]:
    dice, bad, orders, all_orders, total = Random(0), 0, 0, 0, Counter[str]()  # noqa: S311
    started = time.thread_time()
    for _ in range(count):
        shape = dice.choice(((1, 2), (1, 3), (1, 4), (2, 2), (2, 3)))
        stack = drawn(dice, nodes=shape[0], devices=shape[1], seats=6)
        found = [*arrivals(stack, way, Random(1))]  # noqa: S311
        bad += any(found)
        orders += sum(found)
        all_orders += len(found)
        total += history(stack, way, Random(2))  # noqa: S311
    taken = 1000 * (time.thread_time() - started) / (all_orders * 4 + count * 20)
    return (
        f"{bad} of {count}",
        f"{orders} of {all_orders}",
        f"{total['stranded']} of {total['seats']}",
        f"{total['guests placed']} of {total['guests']}",
        f"{taken:.2f}",
    )


if __name__ == "__main__":
    main()
