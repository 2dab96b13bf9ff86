"""Chooses which offenders the watchdog recycles on a device below its floor (docs/records/0000). Units: whole MiB.

The successor of a recycled pod can allocate its whole budget. A recycle therefore frees only the overshoot of a pod.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Offender(Protocol):
    """A pod, or a queued Job with all its pods, that the watchdog may recycle.

    `overshoot_mib` is at least 1. `age_seconds` of a Job is the age of its oldest pod. `name` is unique.
    """

    @property
    def name(self) -> str: ...
    @property
    def overshoot_mib(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def age_seconds(self) -> float: ...


Chosen = TypeVar("Chosen", bound=Offender)


@dataclass(frozen=True, kw_only=True)
class RecycleChoice(Generic[Chosen]):
    """The chosen offenders.

    `restores` is True if the missing memory is free again when the chosen pods are back within their budgets.
    """

    chosen: tuple[Chosen, ...]
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


def choose_offenders(offenders: Iterable[Chosen], *, shortfall_mib: int) -> RecycleChoice[Chosen]:
    """Chooses as few offenders as possible. The total overshoot of the chosen offenders is at least the missing memory.

    The result is exact. Of several smallest sets, the set with the lowest priorities is chosen. The comparison of two
    sets starts with their highest priorities. Among sets with equal priorities, the largest overshoots win, and then
    the youngest offenders. If all offenders together have too little overshoot, chooses none.
    """
    chosen = sorted(offenders, key=lambda each: (-each.priority, -each.overshoot_mib, each.age_seconds, each.name))
    size = _fewest(chosen, shortfall_mib)
    if size is None:
        return RecycleChoice(chosen=(), restores=False)
    # Spares one after the other whom the smallest set does not need: of the highest priority first the offender with
    # the smallest overshoot. If a smallest set needs this offender, it also needs those with more overshoot.
    for each in sorted(chosen, key=lambda each: each.priority)[::-1]:
        rest = [other for other in chosen if other is not each]
        if _fewest(rest, shortfall_mib) == size:
            chosen = rest
    return RecycleChoice(chosen=tuple(chosen) if size else (), restores=True)


def _fewest(offenders: Iterable[Offender], shortfall_mib: int) -> int | None:
    """Returns the size of the smallest set of offenders that restores the shortfall, or None."""
    left_mib, count = shortfall_mib, 0
    for overshoot in sorted((each.overshoot_mib for each in offenders), reverse=True):
        if left_mib <= 0:
            break
        left_mib, count = left_mib - overshoot, count + 1
    return count if left_mib <= 0 else None
