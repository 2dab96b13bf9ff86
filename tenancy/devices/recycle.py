"""Chooses the offenders to recycle on a device under its floor, for the watchdog (record 0000). Units: whole MiB.

A recycled pod takes its declared memory again, so a recycle restores only the overshoot.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
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
    """The chosen offenders. `restores` is True if the shortfall is free again once they are within their budgets."""

    chosen: tuple[Offender, ...]
    restores: bool


def overshoot_mib(
    *, used: Mapping[str, int], device: str, declared_mib: int, placed_on: Collection[str] | None = None
) -> int:
    """Returns the MiB by which a pod exceeds its budget on one device. `used` is MiB by device.

    A pod that was placed on several devices has an equal part of its budget on each device, and none elsewhere.
    The budget of any other pod is for the sum over all devices. Its overshoot is at most its use of the device.
    """
    if placed_on and len(placed_on) > 1:
        return _beyond_share(used, device, declared_mib, placed_on)
    return max(min(used.get(device, 0), sum(used.values()) - declared_mib), 0)


def total_overshoot(*, used: Mapping[str, int], declared: int, placed_on: Collection[str] | None = None) -> int:
    """Returns the amount by which a pod exceeds its budget on all devices together, in the unit of the arguments."""
    if placed_on and len(placed_on) > 1:
        return sum(_beyond_share(used, device, declared, placed_on) for device in used)
    return max(sum(used.values()) - declared, 0)


def _beyond_share(used: Mapping[str, int], device: str, declared: int, placed_on: Collection[str]) -> int:
    share = -(-declared // len(placed_on)) if device in placed_on else 0
    return max(used.get(device, 0) - share, 0)


def choose(offenders: Iterable[Offender], *, shortfall_mib: int) -> RecycleChoice:
    """Chooses the smallest set of offenders that restores the shortfall. Exact, in O(n log n).

    Of several smallest sets, the one with the lowest priorities is chosen, compared from the highest priority down.
    Then the furthest over counts, and then the youngest. If no set restores the shortfall, nobody is chosen.
    """
    ranked = sorted(offenders, key=_worst_first)
    if shortfall_mib <= 0 or not ranked:
        return RecycleChoice(chosen=(), restores=shortfall_mib <= 0)
    size = _fewest(ranked, shortfall_mib)
    if size is None:
        return RecycleChoice(chosen=(), restores=False)
    return RecycleChoice(chosen=tuple(_lowest_priorities(ranked, size, shortfall_mib)), restores=True)


def _worst_first(offender: Offender) -> tuple[int, int, float, str]:
    """Sorts by priority from the highest. Within one priority, the first are the first to be chosen."""
    return -offender.priority, -offender.overshoot_mib, offender.age_seconds, offender.name


def _fewest(offenders: Sequence[Offender], shortfall_mib: int) -> int | None:
    """Returns the smallest number that restores the shortfall, or None if even all together do not."""
    left_mib = shortfall_mib
    for count, overshoot in enumerate(sorted((o.overshoot_mib for o in offenders), reverse=True), 1):
        left_mib -= overshoot
        if left_mib <= 0:
            return count
    return None


def _lowest_priorities(ranked: Sequence[Offender], size: int, shortfall_mib: int) -> list[Offender]:
    """Chooses from the highest priority down.

    Each priority gives as few offenders as possible, the furthest over first.

    Within a priority, the offenders furthest over free the most and are also first in order. So only their number is
    open.
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
    """Returns how few of a priority suffice, so that with the best of the lower priorities `open_` offenders
    free `left_mib`.
    """
    for count in range(min(open_, len(level)) + 1):
        rest = below[: open_ - count]
        if count + len(rest) == open_ and sum(level[:count]) + sum(rest) >= left_mib:
            return count
    raise AssertionError("a set of this size restores the shortfall")
