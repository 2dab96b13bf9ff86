"""Whom to recycle on a device that is under its floor: the arithmetic of the watchdog (record 0000). Units: whole MiB.

A recycled pod comes back and takes what it declared, so what a recycle restores for good is what the pod used beyond
that. By this measure the one that ran away is chosen, and not a large one that is a little over.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, kw_only=True)
class Offender:
    """What is recycled as one: a pod, or a queued Job with its pods, whose oldest has the age. `name` is unique."""

    name: str
    overshoot_mib: int
    priority: int = 0
    age_seconds: float = 0

    def __post_init__(self) -> None:
        if self.overshoot_mib < 1:
            raise ValueError(f"{self.name}: overshoot_mib must be at least 1 (got {self.overshoot_mib})")


@dataclass(frozen=True, kw_only=True)
class RecycleChoice:
    """`restores`: whether the floor is free again once the chosen are back within what they declared."""

    chosen: tuple[Offender, ...]
    restores: bool


def overshoot_mib(*, used: Mapping[str, int], device: str, declared_mib: int) -> int:
    """What a pod has of one device beyond what it declared, 0 within its budget; `used` is MiB by device.

    The budget is for the pod: however it spreads its memory over devices, it is over only when the sum is, and on each
    device by no more than it has there.
    """
    return max(min(used.get(device, 0), sum(used.values()) - declared_mib), 0)


def choose(offenders: Iterable[Offender], *, shortfall_mib: int, at_most: int) -> RecycleChoice:
    """The smallest set of at most `at_most` offenders that restores the shortfall. Exact, in O(n log n).

    Of several smallest sets the one of the lowest priorities, compared from the highest down; of these the one that is
    furthest over; of these the youngest, which lose the least work. Where no such set restores the floor, the one
    offender that is furthest over: it gives the most for one restart, and the next sample shows what is still missing.
    """
    ranked = sorted(offenders, key=_worst_first)
    if shortfall_mib <= 0 or at_most <= 0 or not ranked:
        return RecycleChoice(chosen=(), restores=shortfall_mib <= 0)
    size = _fewest(ranked, shortfall_mib)
    if size is None or size > at_most:
        return RecycleChoice(chosen=(min(ranked, key=_furthest_over),), restores=False)
    return RecycleChoice(chosen=tuple(_lowest_priorities(ranked, size, shortfall_mib)), restores=True)


def _worst_first(offender: Offender) -> tuple[int, int, float, str]:
    """By priority from the highest; within one, the order in which they are taken."""
    return -offender.priority, -offender.overshoot_mib, offender.age_seconds, offender.name


def _furthest_over(offender: Offender) -> tuple[int, int, float, str]:
    return -offender.overshoot_mib, offender.priority, offender.age_seconds, offender.name


def _fewest(offenders: Sequence[Offender], shortfall_mib: int) -> int | None:
    """How many restore the shortfall at least; None where all together do not."""
    left_mib = shortfall_mib
    for count, overshoot in enumerate(sorted((o.overshoot_mib for o in offenders), reverse=True), 1):
        left_mib -= overshoot
        if left_mib <= 0:
            return count
    return None


def _lowest_priorities(ranked: Sequence[Offender], size: int, shortfall_mib: int) -> list[Offender]:
    """From the highest priority down, as few as the lower ones cannot do without, each time those furthest over.

    Within a priority the furthest over serve best both the shortfall and the order, so that only their number is open.
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
    """The fewest of a level such that, with the best of those below, `open_` of them restore what is left."""
    for count in range(min(open_, len(level)) + 1):
        rest = below[: open_ - count]
        if count + len(rest) == open_ and sum(level[:count]) + sum(rest) >= left_mib:
            return count
    raise AssertionError("a set of this size restores the shortfall")
