"""Computes stranded memory, the free GPU memory that the usual pods of the cluster cannot use.

For example, a pod of 8138 MiB cannot use a device with 4069 free MiB. A pod also cannot use the memory of a node that
has too little free CPU. The best choice of devices for a pod strands the least memory.

The source is the paper on fragmentation gradient descent (Weng et al., "Beware of Fragmentation", USENIX ATC 2023). In
this module, memory is the only resource of a device. This module counts all GPU pods as usual pods. The paper counts
only the most frequent 95% of all pods as usual pods.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import mul

from tenancy.devices.allocate import DeviceChoice, MemoryRequest, best_fit

# Costs are counted in grains. One grain is a tenth of the average memory of a usual pod. Choices that differ by less
# than one grain have equal costs. Devices with equal costs are filled one after the other.
_GRAIN = 0.1
# The free MiB of each device of a node, and the node's free CPU in thousandths (None if unknown).
State = tuple[Iterable[int], int | None]
_KEPT = 1 << 14  # the maximum number of node states in the cache


class PodMix:
    """The requests of the usual pods, and the frequency of each request. The method `choice` is a Chooser."""

    def __init__(self, usual: Iterable[MemoryRequest]) -> None:
        counts = Counter(usual)
        by_devices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for request, count in counts.items():
            by_devices[request.mib, request.count].append((request.cpu_milli, count))
        total = counts.total()
        self._shapes = tuple(by_devices)
        # Each shape has two lists. The first list of a shape has the sorted CPU requests of the pods with this shape.
        # The second list of a shape has, for each CPU request, the fraction of all pods with this shape and at most
        # this CPU request.
        self._shares = [_rising(needs, total) for needs in by_devices.values()]
        self._grain_mib = _GRAIN * sum(request.mib * count for request, count in counts.items()) / max(total, 1)
        self._usable = lru_cache(_KEPT)(self._usable_by_shape)
        self._enabled = lru_cache(_KEPT)(self._enabled_by_cpu)

    def stranded_mib(self, free: Iterable[int], cpu_milli: int | None) -> float:
        """Returns the stranded MiB as an average over the usual pods."""
        total, usable = self._usable(tuple(sorted(free)))
        return float(total - sum(map(mul, usable, self._enabled(cpu_milli))))

    def cost(self, before: State, after: State) -> int:
        """Returns the cost of a change from one state to another. One unit of the cost is a tenth of the average memory
        of a usual pod.

        The cost is the additional stranded memory, rounded up. With a cost of 0, no additional memory is stranded.
        """
        return math.ceil(round((self.stranded_mib(*after) - self.stranded_mib(*before)) / self._grain_mib, 6))

    def choice(self, request: MemoryRequest, free: Mapping[int, int], cpu_milli: int | None) -> DeviceChoice | None:
        """Returns the devices on which the pod strands the least memory.

        Among equal choices, returns the choice of `best_fit`. The cost of the result comes from the method `cost`.
        """
        best = best_fit(request, free)
        if best is None or not self._shapes:
            return best
        left = None if cpu_milli is None else cpu_milli - request.cpu_milli
        ways = _ways(request, free, best)
        _, _, indices = min(
            (self.stranded_mib(_less(request, free, way), left), at, way) for at, way in enumerate(ways)
        )
        return DeviceChoice(indices, self.cost((free.values(), cpu_milli), (_less(request, free, indices), left)))

    def _usable_by_shape(self, free: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Returns the total free memory, and the free memory that a pod of each shape could use. `free` is sorted."""
        sums = (0, *accumulate(free))
        fitting = [bisect_left(free, mib) for mib, _ in self._shapes]
        usable = tuple(
            sums[-1] - sums[at] if len(free) - at >= count else 0
            for at, (_, count) in zip(fitting, self._shapes, strict=True)
        )
        return sums[-1], usable

    def _enabled_by_cpu(self, cpu_milli: int | None) -> tuple[float, ...]:
        return tuple(
            shares[-1] if cpu_milli is None else shares[bisect_right(needs, cpu_milli)]
            for needs, shares in self._shares
        )


def _rising(needs: Iterable[tuple[int, int]], total: int) -> tuple[list[int], list[float]]:
    ordered = sorted(needs)
    return [cpu for cpu, _ in ordered], [*accumulate((count / total for _, count in ordered), initial=0.0)]


def _ways(request: MemoryRequest, free: Mapping[int, int], best: DeviceChoice) -> Sequence[tuple[int, ...]]:
    """Returns one device for each different amount of free memory. The smallest amount comes first.

    For a pod with several devices, returns only the choice of `best_fit`.
    """
    if request.count > 1:
        return [best.indices]
    by_size: dict[int, int] = {}
    for mib, index in sorted((mib, index) for index, mib in free.items() if mib >= request.mib):
        by_size.setdefault(mib, index)
    return [(index,) for index in by_size.values()]


def _less(request: MemoryRequest, free: Mapping[int, int], indices: tuple[int, ...]) -> list[int]:
    return [mib - request.mib * (index in indices) for index, mib in free.items()]
