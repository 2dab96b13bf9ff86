"""Draws random stacks of seats, and judges placements by brute force, without code of tenancy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from random import Random


@dataclass(frozen=True, order=True)
class Wanted:
    mib: int
    devices: int = 1


Node = tuple[int, ...]  # the free MiB of a node's devices


@lru_cache(maxsize=1 << 18)
def fits(seats: tuple[Wanted, ...], nodes: tuple[Node, ...]) -> bool:
    if not seats:
        return True
    if sum(seat.mib * seat.devices for seat in seats) > sum(map(sum, nodes)):
        return False
    *others, seat = seats
    return any(fits(tuple(others), after) for after in {after for _, _, after in ways(seat, nodes)})


def ways(seat: Wanted, nodes: Sequence[Node]) -> Iterator[tuple[int, tuple[int, ...], tuple[Node, ...]]]:
    for number, node in enumerate(nodes):
        for chosen in combinations([index for index, mib in enumerate(node) if mib >= seat.mib], seat.devices):
            after = tuple(sorted(mib - seat.mib * (index in chosen) for index, mib in enumerate(node)))
            yield number, chosen, tuple(sorted((*nodes[:number], after, *nodes[number + 1 :])))


@dataclass
class Stack:
    nodes: tuple[Node, ...]
    seats: tuple[Wanted, ...]
    places: dict[object, tuple[Wanted, int, tuple[int, ...]]] = field(default_factory=dict)

    def free(self) -> list[list[int]]:
        left = [list(node) for node in self.nodes]
        for pod, number, chosen in self.places.values():
            for index in chosen:
                left[number][index] -= pod.mib
        return left

    def absent(self) -> list[Wanted]:
        return [seat for number, seat in enumerate(self.seats) if number not in self.places]

    def is_kept(self) -> bool:
        free = self.free()
        return all(mib >= 0 for node in free for mib in node) and fits(
            tuple(sorted(self.absent())), tuple(sorted(tuple(sorted(node)) for node in free))
        )


def drawn(dice: Random, *, nodes: int, devices: int, seats: int, mib: int = 12, several: float = 0.25) -> Stack:
    while True:
        each = [devices if nodes == 1 else dice.randint(1, devices) for _ in range(nodes)]
        whole = tuple(sorted((mib,) * count for count in each))
        found = tuple(
            sorted(
                Wanted(
                    dice.randint(1, mib), dice.randint(2, max(each)) if max(each) > 1 and dice.random() < several else 1
                )
                for _ in range(dice.randint(min(3, seats), seats))
            )
        )
        used = sum(seat.mib * seat.devices for seat in found)
        if 0.75 * mib * sum(each) <= used <= mib * sum(each) and fits(found, whole):
            return Stack(whole, found)
