"""Tries all placements to decide whether pods with several devices fit."""

from functools import cache
from itertools import combinations

Nodes = tuple[tuple[int, ...], ...]
Requests = tuple[tuple[int, int], ...]


@cache
def by_trying_everything(requests: Requests, nodes: Nodes) -> bool:
    if not requests:
        return True
    mib, count = requests[0]
    for number, node in enumerate(nodes):
        for chosen in combinations(range(len(node)), count):
            after = tuple(sorted(room - mib * (index in chosen) for index, room in enumerate(node)))
            others = (*nodes[:number], *nodes[number + 1 :])
            if after and after[0] >= 0 and by_trying_everything(requests[1:], tuple(sorted((*others, after)))):
                return True
    return False
