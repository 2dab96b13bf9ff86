"""The offenders to recycle on a device under its floor: the watchdog's arithmetic (record 0000). Units: whole MiB.

A recycled pod takes its declared memory again, so a recycle restores only the overshoot.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, kw_only=True)
class Offender:
    """A pod, or a queued Job with its pods and the age of the oldest. `name` is unique."""

    name: str
    overshoot_mib: int
    priority: int = 0
    age_seconds: float = 0

    def __post_init__(self) -> None:
        if self.overshoot_mib < 1:
            raise ValueError(f"{self.name}: overshoot_mib must be at least 1 (got {self.overshoot_mib})")


@dataclass(frozen=True, kw_only=True)
class RecycleChoice:
    """`restores`: the shortfall is free again once the chosen are within their budgets."""

    chosen: tuple[Offender, ...]
    restores: bool


def overshoot_mib(*, used: Mapping[str, int], device: str, declared_mib: int) -> int:
    """The MiB by which a pod exceeds its budget on one device; `used` is MiB by device.

    The budget is for the sum over all devices. On each device, the overshoot is at most the pod's use there.
    """
    return max(min(used.get(device, 0), sum(used.values()) - declared_mib), 0)


def choose(offenders: Iterable[Offender], *, shortfall_mib: int) -> RecycleChoice:
    """The smallest set of offenders that restores the shortfall. Exact, in O(n log n).

    Of several smallest sets it takes the lowest priorities, compared from the highest down, then the furthest over,
    then the youngest. If no set restores the shortfall, it takes nobody.
    """
    ranked = sorted(offenders, key=_worst_first)
    if shortfall_mib <= 0 or not ranked:
        return RecycleChoice(chosen=(), restores=shortfall_mib <= 0)
    size = _fewest(ranked, shortfall_mib)
    if size is None:
        return RecycleChoice(chosen=(), restores=False)
    return RecycleChoice(chosen=tuple(_lowest_priorities(ranked, size, shortfall_mib)), restores=True)


def _worst_first(offender: Offender) -> tuple[int, int, float, str]:
    """By priority from the highest; within one, the order in which they are taken."""
    return -offender.priority, -offender.overshoot_mib, offender.age_seconds, offender.name


def _fewest(offenders: Sequence[Offender], shortfall_mib: int) -> int | None:
    """The smallest number that restores the shortfall; None if all together do not."""
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
