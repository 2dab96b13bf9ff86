"""Compares the measured use over time with the declarations of a memory pool.

The module also counts how often several workloads are at their peaks at the same time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from tenancy.host_memory.pool import HostMemoryPool, Workload

MINUTE, HOUR = 60, 3600
# The largest permitted fraction of time in which a workload uses more than its request.
RARELY = 0.05


@dataclass(frozen=True)
class UsageSample:
    """The MiB that a workload uses at one time. `time` is in seconds since 1970."""

    time: float
    workload: str
    mib: float


@dataclass(frozen=True, kw_only=True)
class Use:
    """The measured use of one workload in MiB.

    `above_request` is the fraction of minutes in which the use was above the request.
    """

    workload: Workload
    minutes: int
    usual_mib: float
    most_mib: float
    above_request: float

    @property
    def contradictions(self) -> dict[str, str]:
        """Returns a message for each declared key that the measurements contradict.

        Each message has the measured value and the declared value.
        """
        declared, found = self.workload, {}
        if self.usual_mib > declared.steady_mib:
            found["steady_mib"] = f"usually holds {self.usual_mib:.0f} MiB, declared {declared.steady_mib}"
        if self.above_request > RARELY:
            share = f"{self.above_request:.0%} of the time"
            found["request_mib"] = f"above its request of {declared.request_mib} MiB {share}"
        if self.most_mib > declared.peak_mib:
            found["peak_mib"] = f"held {self.most_mib:.0f} MiB, declared {declared.peak_mib}"
        return found


@dataclass(frozen=True, kw_only=True)
class HourCount:
    """The number of hours with an event (`hits`), of all hours."""

    hits: int
    hours: int


@dataclass(frozen=True, kw_only=True)
class JointUse:
    """The MiB of all workloads of a memory pool for each minute. The workloads are in the same order as in the memory
    pool.

    `together` is the fraction of minutes in which at least two workloads used more than half of their burst. A workload
    without a declared burst counts in a minute if its use is above its declared peak and above its request. `short` has
    the hours in which the workloads used more than all pods may, and `needs_victims` those in which they used more than
    the disposable pods, at their most, leave to them.
    """

    uses: tuple[Use, ...]
    minutes: Mapping[int, tuple[float, ...]]
    together: float
    short: HourCount
    needs_victims: HourCount

    @property
    def highest(self) -> tuple[int, tuple[float, ...]]:
        """Returns the minute with the largest sum of all workloads, and the MiB of each workload in this minute."""
        return max(self.minutes.items(), key=lambda minute: sum(minute[1]))


def joint_use(pool: HostMemoryPool, samples: Iterable[UsageSample]) -> JointUse:
    """Joins the samples of all workloads by minute.

    Only minutes with samples of every workload count. The largest sample of each minute is used. Raises ValueError if
    no minute has a sample of every workload.
    """
    by_name: dict[str, dict[int, float]] = defaultdict(dict)
    for sample in samples:
        minute = int(sample.time // MINUTE)
        by_name[sample.workload][minute] = max(sample.mib, by_name[sample.workload].get(minute, 0))
    series = {workload.name: by_name.get(workload.name, {}) for workload in pool.workloads}
    missing = sorted(name for name, found in series.items() if not found)
    shared = sorted(set.intersection(*(set(found) for found in series.values())))
    if not shared:
        raise ValueError(f"no minute has a sample of every workload; none at all: {', '.join(missing) or 'of nobody'}")
    minutes = {minute: tuple(found[minute] for found in series.values()) for minute in shared}
    held_mib = sum(disposable.pods_most * disposable.resident_most_mib for disposable in pool.disposable)
    return JointUse(
        uses=tuple(_use(workload, series[workload.name]) for workload in pool.workloads),
        minutes=minutes,
        together=_together(pool, minutes),
        short=_hours_above(minutes, pool.pods_mib),
        needs_victims=_hours_above(minutes, pool.pods_mib - held_mib),
    )


def _use(workload: Workload, minutes: Mapping[int, float]) -> Use:
    held = list(minutes.values())
    return Use(
        workload=workload,
        minutes=len(held),
        usual_mib=median(held),
        most_mib=max(held),
        above_request=sum(mib > workload.request_mib for mib in held) / len(held),
    )


def _together(pool: HostMemoryPool, minutes: Mapping[int, tuple[float, ...]]) -> float:
    """Returns the fraction of minutes in which at least two workloads were at their peaks."""
    upper = [w.steady_mib + w.burst_mib / 2 if w.burst_mib else max(w.peak_mib, w.request_mib) for w in pool.workloads]
    peaking = [sum(mib > level for mib, level in zip(held, upper, strict=True)) for held in minutes.values()]
    return sum(count > 1 for count in peaking) / len(peaking)


def _hours_above(minutes: Mapping[int, tuple[float, ...]], level_mib: float) -> HourCount:
    """Counts the hours in which the sum of all workloads was above a value.

    The unit is an hour, because successive minutes are not independent: memory stays in use.
    """
    hours: dict[int, bool] = {}
    for minute, held in minutes.items():
        hour = minute * MINUTE // HOUR
        hours[hour] = hours.get(hour, False) or sum(held) > level_mib
    return HourCount(hits=sum(hours.values()), hours=len(hours))
