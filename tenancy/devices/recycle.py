"""Chooses which offenders the watchdog recycles on a device below its floor (docs/records/0000). Units: whole MiB.

The successor of a recycled pod can allocate its whole budget. A recycle therefore frees only the overshoot of a pod.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, kw_only=True)
class Offender:
    """A pod, or a queued Job with all its pods, that the watchdog may recycle.

    `age_seconds` of a Job is the age of its oldest pod. `name` is unique.
    """

    name: str
    overshoot_mib: int
    priority: int = 0
    age_seconds: float = 0

    def __post_init__(self) -> None:
        if self.overshoot_mib < 1:
            raise ValueError(f"{self.name}: overshoot_mib must be at least 1 (got {self.overshoot_mib})")


@dataclass(frozen=True, kw_only=True)
class RecycleChoice:
    """The chosen offenders.

    `restores` is True if the missing memory is free again when the chosen pods are back within their budgets.
    """

    chosen: tuple[Offender, ...]
    restores: bool


def overshoot_mib(
    *, used: Mapping[str, int], device: str, declared_mib: int, placed_on: Collection[str] | None = None
) -> int:
    """Returns the MiB by which a pod exceeds its budget on one device. `used` has the pod's use on each device in MiB.

    If a pod was placed on several devices, its budget is divided equally between these devices. The pod has no budget
    on any other device. For all other pods, the budget limits the sum over all devices. The overshoot on a device is at
    most the pod's use of the device.
    """
    if placed_on and len(placed_on) > 1:
        return _beyond_share(used, device, declared_mib, placed_on)
    return max(min(used.get(device, 0), sum(used.values()) - declared_mib), 0)


def total_overshoot(*, used: Mapping[str, int], declared: int, placed_on: Collection[str] | None = None) -> int:
    """Returns the amount by which a pod exceeds its budget on all devices together.

    The result has the same unit as `used` and `declared`.
    """
    if placed_on and len(placed_on) > 1:
        return sum(_beyond_share(used, device, declared, placed_on) for device in used)
    return max(sum(used.values()) - declared, 0)


def _beyond_share(used: Mapping[str, int], device: str, declared: int, placed_on: Collection[str]) -> int:
    share = -(-declared // len(placed_on)) if device in placed_on else 0
    return max(used.get(device, 0) - share, 0)


def choose_offenders(offenders: Iterable[Offender], *, shortfall_mib: int) -> RecycleChoice:
    """Chooses as few offenders as possible. The total overshoot of the chosen offenders is at least the missing memory.

    The result is exact and takes O(n log n) time. Of several smallest sets, the set with the lowest priorities is
    chosen. The comparison of two sets starts with their highest priorities. Among sets with equal priorities, the
    largest overshoots win, and then the youngest offenders. If all offenders together have too little overshoot,
    chooses none.
    """
    ranked = sorted(offenders, key=_worst_first)
    if shortfall_mib <= 0 or not ranked:
        return RecycleChoice(chosen=(), restores=shortfall_mib <= 0)
    size = _fewest(ranked, shortfall_mib)
    if size is None:
        return RecycleChoice(chosen=(), restores=False)
    return RecycleChoice(chosen=tuple(_lowest_priorities(ranked, size, shortfall_mib)), restores=True)


def _worst_first(offender: Offender) -> tuple[int, int, float, str]:
    """Returns a key for sorting. The highest priority comes first.

    Among offenders of equal priority, the largest overshoot comes first, and then the youngest offender.
    """
    return -offender.priority, -offender.overshoot_mib, offender.age_seconds, offender.name


def _fewest(offenders: Sequence[Offender], shortfall_mib: int) -> int | None:
    left_mib = shortfall_mib
    for count, overshoot in enumerate(sorted((o.overshoot_mib for o in offenders), reverse=True), 1):
        left_mib -= overshoot
        if left_mib <= 0:
            return count
    return None


def _lowest_priorities(ranked: Sequence[Offender], size: int, shortfall_mib: int) -> list[Offender]:
    """Decides for one priority after the other how many offenders are chosen, starting with the highest priority.

    Takes as few offenders of each priority as possible, with the largest overshoot first.

    Among offenders of one priority, the largest overshoot frees the most memory, so it comes first. Only the number of
    offenders to take is still open.
    """
    chosen: list[Offender] = []
    levels = [list(level) for _, level in groupby(ranked, key=lambda offender: offender.priority)]
    for index, level in enumerate(levels):
        below = sorted((o.overshoot_mib for lower in levels[index + 1 :] for o in lower), reverse=True)
        left_mib = shortfall_mib - sum(offender.overshoot_mib for offender in chosen)
        open_ = size - len(chosen)
        chosen += level[: _needed([o.overshoot_mib for o in level], below, open_, left_mib)]
    return chosen


def _needed(level: Sequence[int], below: Sequence[int], open_: int, left_mib: int) -> int:
    """Returns the smallest number of offenders of this priority that is enough.

    All `open_` offenders together must free `left_mib`. `below` has the overshoots of the offenders with a lower
    priority.
    """
    for count in range(min(open_, len(level)) + 1):
        rest = below[: open_ - count]
        if count + len(rest) == open_ and sum(level[:count]) + sum(rest) >= left_mib:
            return count
    raise AssertionError("a set of this size restores the shortfall")
