"""Compares the measured use over time with the declarations of a memory pool.

The module also counts how often several workloads are at their peaks at the same time.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from tenancy.host_memory.pool import HostMemoryPool, Workload

MINUTE, HOUR = 60, 3600
# Each proposed number is a multiple of this many MiB (an eighth of a GiB).
GRID_MIB = 128
# The largest permitted fraction of time in which a workload uses more than its request.
_RARELY = 0.05


@dataclass(frozen=True)
class UsageSample:
    """The MiB that a workload uses at one time. `time` is in seconds since 1970."""

    time: float
    workload: str
    mib: float


@dataclass(frozen=True, kw_only=True)
class WorkloadUse:
    """The measured use of a workload, beside the `steady_mib` and the `peak_mib` that are declared.

    `above_request` is the fraction of minutes in which the use was above the request. If a declared number is wrong,
    `contradictions` has a message for its key, and `proposed` a number in MiB.
    """

    workload: str
    minutes: int
    usual_mib: float
    steady_mib: int
    most_mib: float
    peak_mib: int
    above_request: float
    contradictions: Mapping[str, str]
    proposed: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class HourCount:
    """The number of hours with an event (`hits`), of all hours."""

    hits: int
    hours: int


@dataclass(frozen=True, kw_only=True)
class PoolUse:
    """The measured use of a pool.

    `minutes` is the number of minutes with samples of all workloads, `first` and `last` are the first and the last of
    them, in minutes since 1970. In the minute `highest`, all workloads together used the most: `highest_mib` of the
    pods' `pods_mib`. `together` is the fraction of minutes in which at least two workloads used more than half of their
    burst. A workload without a declared burst counts in a minute if its use is above its declared peak and above its
    request. `short` has the hours in which the workloads used more than all pods may, and `needs_victims` those in
    which they used more than the disposable pods, at their most, leave to them.
    """

    pool: str
    workloads: tuple[WorkloadUse, ...]
    minutes: int
    first: int
    last: int
    highest: int
    highest_mib: float
    pods_mib: int
    together: float
    short: HourCount
    needs_victims: HourCount


def pool_use(pool: HostMemoryPool, samples: Iterable[UsageSample]) -> PoolUse:
    """Joins the samples of all workloads by minute. Uses the largest sample of each minute.

    Raises ValueError if no minute has a sample of every workload.
    """
    series: dict[str, dict[int, float]] = {workload.name: {} for workload in pool.workloads}
    for sample in samples:
        if (found := series.get(sample.workload)) is not None:
            minute = int(sample.time // MINUTE)
            found[minute] = max(sample.mib, found.get(minute, 0))
    shared = sorted(set.intersection(*map(set, series.values())))
    if not shared:
        missing = ", ".join(sorted(name for name, found in series.items() if not found))
        raise ValueError(
            f"{pool.name}: no minute has a sample of every workload; none at all: {missing or 'of nobody'}"
        )
    sums = {minute: sum(found[minute] for found in series.values()) for minute in shared}
    highest = max(shared, key=sums.__getitem__)
    victims_mib = sum(disposable.pods_most * disposable.resident_most_mib for disposable in pool.disposable)
    return PoolUse(
        pool=pool.name,
        workloads=tuple(_use(workload, series[workload.name].values()) for workload in pool.workloads),
        minutes=len(shared),
        first=shared[0],
        last=shared[-1],
        highest=highest,
        highest_mib=sums[highest],
        pods_mib=pool.pods_mib,
        together=_together(pool, series, shared),
        short=_hours_above(sums, pool.pods_mib),
        needs_victims=_hours_above(sums, pool.pods_mib - victims_mib),
    )


def _use(declared: Workload, used: Collection[float]) -> WorkloadUse:
    held = sorted(used)
    usual_mib, most_mib = median(held), held[-1]
    above_request = sum(mib > declared.request_mib for mib in held) / len(held)
    rarely_above_mib = held[min(math.ceil((1 - _RARELY) * len(held)), len(held)) - 1]
    found: dict[str, tuple[str, float]] = {}
    if usual_mib > declared.steady_mib:
        found["steady_mib"] = f"usually holds {usual_mib:.0f} MiB, declared {declared.steady_mib}", usual_mib
    if above_request > _RARELY:
        share = f"{above_request:.0%} of the time"
        found["request_mib"] = f"above its request of {declared.request_mib} MiB {share}", rarely_above_mib
    if most_mib > declared.peak_mib:
        found["peak_mib"] = f"held {most_mib:.0f} MiB, declared {declared.peak_mib}", most_mib
    return WorkloadUse(
        workload=declared.name,
        minutes=len(held),
        usual_mib=usual_mib,
        steady_mib=declared.steady_mib,
        most_mib=most_mib,
        peak_mib=declared.peak_mib,
        above_request=above_request,
        contradictions={key: said for key, (said, _) in found.items()},
        proposed={key: math.ceil(mib / GRID_MIB) * GRID_MIB for key, (_, mib) in found.items()},
    )


def _together(pool: HostMemoryPool, series: Mapping[str, Mapping[int, float]], minutes: Collection[int]) -> float:
    """Returns the fraction of minutes in which at least two workloads were at their peaks."""
    upper = {
        w.name: w.steady_mib + w.burst_mib / 2 if w.burst_mib else max(w.peak_mib, w.request_mib)
        for w in pool.workloads
    }
    return sum(sum(series[name][minute] > mib for name, mib in upper.items()) > 1 for minute in minutes) / len(minutes)


def _hours_above(sums: Mapping[int, float], level_mib: float) -> HourCount:
    """Counts the hours in which the sum of all workloads was above a value.

    The unit is an hour, because successive minutes are not independent: memory stays in use.
    """
    hours = {minute * MINUTE // HOUR for minute in sums}
    above = {minute * MINUTE // HOUR for minute, mib in sums.items() if mib > level_mib}
    return HourCount(hits=len(above), hours=len(hours))
