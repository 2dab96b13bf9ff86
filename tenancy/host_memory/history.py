"""Compares the measured use over time with the declarations of a memory pool.

The module also counts how often several workloads are at their peaks at the same time.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from tenancy.host_memory.pool import HostMemoryPool, Workload

MINUTE, HOUR = 60, 3600
CONFIDENCE = 0.95
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
class Probability:
    """The estimated probability that an event happens in an hour. `low` and `high` are the bounds of the 95% confidence
    interval of the probability.
    """

    hits: int
    hours: int
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class JointUse:
    """The MiB of all workloads of a memory pool for each minute. The workloads are in the same order as in the memory
    pool.

    `together` is the fraction of minutes in which at least two workloads used more than half of their burst. A workload
    without a declared burst counts in a minute if its use is above its declared peak and above its request. `by_chance`
    is the value that `together` would have for independent workloads.
    """

    uses: tuple[Use, ...]
    minutes: Mapping[int, tuple[float, ...]]
    together: float
    by_chance: float
    short: Probability
    needs_victims: Probability

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
    together, by_chance = _coincidence(pool, minutes)
    return JointUse(
        uses=tuple(_use(workload, series[workload.name]) for workload in pool.workloads),
        minutes=minutes,
        together=together,
        by_chance=by_chance,
        short=_hours_above(minutes, pool.pods_mib),
        needs_victims=_hours_above(minutes, pool.pods_mib - held_mib),
    )


def interval(hits: int, trials: int) -> tuple[float, float]:
    """Returns the bounds for the probability of an event that happened in `hits` of `trials` cases.

    The source is Clopper and Pearson, Biometrika 26 (1934).
    """
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if hits == 0 else _crossing(lambda p: 1 - _at_most(hits - 1, trials, p), tail)
    high = 1.0 if hits == trials else _crossing(lambda p: 1 - _at_most(hits, trials, p), 1 - tail)
    return low, high


def _use(workload: Workload, minutes: Mapping[int, float]) -> Use:
    held = list(minutes.values())
    return Use(
        workload=workload,
        minutes=len(held),
        usual_mib=median(held),
        most_mib=max(held),
        above_request=sum(mib > workload.request_mib for mib in held) / len(held),
    )


def _coincidence(pool: HostMemoryPool, minutes: Mapping[int, tuple[float, ...]]) -> tuple[float, float]:
    """Returns the fraction of minutes in which at least two workloads were at their peaks.

    Also returns the same fraction for workloads that are independent of each other.
    """
    upper = [w.steady_mib + w.burst_mib / 2 if w.burst_mib else max(w.peak_mib, w.request_mib) for w in pool.workloads]
    peaking = [[mib > level for mib, level in zip(held, upper, strict=True)] for held in minutes.values()]
    shares = [sum(column) / len(peaking) for column in zip(*peaking, strict=True)]
    none = math.prod(1 - share for share in shares)
    one = sum(
        share * math.prod(1 - other for j, other in enumerate(shares) if j != i) for i, share in enumerate(shares)
    )
    return sum(sum(row) > 1 for row in peaking) / len(peaking), max(1 - none - one, 0.0)


def _hours_above(minutes: Mapping[int, tuple[float, ...]], level_mib: float) -> Probability:
    """Counts the hours in which the sum of all workloads was above a value.

    The unit is an hour, because successive minutes are not independent: memory stays in use.
    """
    hours: dict[int, bool] = {}
    for minute, held in minutes.items():
        hour = minute * MINUTE // HOUR
        hours[hour] = hours.get(hour, False) or sum(held) > level_mib
    hits = sum(hours.values())
    low, high = interval(hits, len(hours))
    return Probability(hits=hits, hours=len(hours), low=low, high=high)


def _at_most(hits: int, trials: int, p: float) -> float:
    """Returns the probability that the event happens in at most `hits` of `trials` cases.

    The code uses logarithms, because a term may be too small for a float.
    """
    if p <= 0 or p >= 1:
        return float(p <= 0 or hits >= trials)
    log_term, total = trials * math.log1p(-p), 0.0
    for hit in range(hits + 1):
        total += math.exp(log_term)
        log_term += math.log((trials - hit) / (hit + 1)) + math.log(p) - math.log1p(-p) if hit < trials else 0.0
    return min(total, 1.0)


def _crossing(rising: Callable[[float], float], level: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < level else (low, middle)
    return (low + high) / 2
