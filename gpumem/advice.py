"""What a history of use says of a seat's budget: what it should be, and at which risk. Pure.

The bound needs no distribution: where days are alike in law and in any order (exchangeable), the next day's peak is
above all of n with a probability of at most 1 / (n + 1). What grows is not alike, so growth is taken out first and put
back for the week to come. Starts are counted apart: a rare cold load says little by the day.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median

DAY_SECONDS = 86_400
# A proposal is a multiple of it, as people write budgets.
GRID_MIB = 100
# A budget is lowered on no less, so that each day of the week was seen.
LEAST_DAYS = 7
# How many days ahead growth is counted in.
AHEAD_DAYS = 7
# What is used so soon after a container's start is a cold load.
COLD_SECONDS = 300
_GAP_SECONDS = 180.0
_GAP_STEPS = 2.5
_COVERED = 0.5  # of a day that counts as one
_SURE = 1.645  # a one-sided 95% of the normal distribution
_QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class UseSample:
    """What a pod of the seat used of one device at a moment, in seconds since 1970. `pressed`: the device was under its
    floor then, so that the pod may have wanted more."""

    time: float
    seat: str
    mib: float
    pod: str = ""
    pressed: bool = False


class Verdict(StrEnum):
    """What to do with a budget."""

    RAISE = "raise"
    LOWER = "lower"
    KEEP = "keep"
    SHORT = "short"  # it may be too large, and what was seen is too little to say so
    UNUSED = "unused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Day:
    """The peaks of a day, apart: cold loads, and all else. None where there was none; `whole` days count for a risk."""

    day: int
    warm_mib: float | None
    cold_mib: float | None
    whole: bool

    @property
    def peak_mib(self) -> float:
        return max(self.warm_mib or 0.0, self.cold_mib or 0.0)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Of one seat; MiB of a replica on one device. `proposed_mib` is None where nothing is known or used.

    `risk_day` is the most that a day's risk is of a peak above what is proposed, `risk_start` likewise of a start; None
    without a whole day, or a start. `growth_mib_per_day` is 0 where none is significant. `pressed`: its device was
    under its floor at the highest peak, and what it would have taken is not known.
    """

    seat: str
    declared_mib: int
    verdict: Verdict
    proposed_mib: int | None
    days: int
    days_above: int
    above: float
    used_p50_mib: float
    used_p95_mib: float
    used_p99_mib: float
    used_max_mib: float
    starts: int
    cold_p50_mib: float | None
    cold_max_mib: float | None
    growth_mib_per_day: float
    risk_day: float | None
    risk_start: float | None
    pressed: bool


def advise(declared: Mapping[str, int], samples: Iterable[UseSample]) -> tuple[Advice, ...]:
    """Of each seat, by its declared MiB. A day on which others were measured and a seat was not is one of no use."""
    by_pod: dict[str, dict[str, list[UseSample]]] = defaultdict(lambda: defaultdict(list))
    times: set[float] = set()
    for sample in samples:
        times.add(sample.time)
        by_pod[sample.seat][sample.pod].append(sample)
    clock = _Clock.of(times)
    return tuple(_advice(seat, mib, by_pod.get(seat, {}), clock) for seat, mib in declared.items())


@dataclass(frozen=True)
class _Clock:
    """When anything was measured: the usual step, the first moment, and which days were measured for long enough."""

    step: float
    times: Sequence[float]
    whole_days: frozenset[int]

    @staticmethod
    def of(times: Iterable[float]) -> "_Clock":
        ordered = sorted(times)
        steps = [later - earlier for earlier, later in pairwise(ordered)]
        step = max(median(steps), 1.0) if steps else 60.0
        seen: dict[int, int] = defaultdict(int)
        for time in ordered:
            seen[int(time // DAY_SECONDS)] += 1
        whole = frozenset(day for day, count in seen.items() if count * step >= _COVERED * DAY_SECONDS)
        return _Clock(step, ordered, whole)

    @property
    def gap(self) -> float:
        return max(_GAP_SECONDS, _GAP_STEPS * self.step)

    def before(self) -> Mapping[float, float]:
        """By each moment, the one measured before it."""
        return {later: earlier for earlier, later in pairwise(self.times)}


def _advice(seat: str, declared_mib: int, pods: Mapping[str, Sequence[UseSample]], clock: _Clock) -> Advice:
    warm, starts = _apart(pods, clock)
    days = _days(warm, starts, clock)
    whole = [day for day in days if day.whole]
    used = sorted(mib for _, mib in warm)
    every = used + [mib for start in starts for _, mib in start]
    cold = sorted(max(mib for _, mib in start) for start in starts)
    growth, ahead_mib = _growth([day for day in whole if day.warm_mib is not None])
    highest = max((day.peak_mib for day in days), default=0.0)
    needed_mib = max(highest, ahead_mib)
    proposed_mib = math.ceil(needed_mib / GRID_MIB) * GRID_MIB if highest > 0 else None
    pressed = any(s.pressed and s.mib >= highest for samples in pods.values() for s in samples)
    p50, p95, p99 = (_quantile(used, share) for share in _QUANTILES)
    return Advice(
        seat=seat,
        declared_mib=declared_mib,
        verdict=_verdict(declared_mib, needed_mib, proposed_mib, 0 if pressed else len(whole)),
        proposed_mib=proposed_mib,
        days=len(whole),
        days_above=sum(day.peak_mib > declared_mib for day in days),
        above=sum(mib > declared_mib for mib in every) / len(every) if every else 0.0,
        used_p50_mib=p50,
        used_p95_mib=p95,
        used_p99_mib=p99,
        used_max_mib=used[-1] if used else 0.0,
        starts=len(starts),
        cold_p50_mib=median(cold) if cold else None,
        cold_max_mib=cold[-1] if cold else None,
        growth_mib_per_day=growth,
        risk_day=1 / (len(whole) + 1) if whole else None,
        risk_start=1 / (len(starts) + 1) if starts else None,
        pressed=pressed,
    )


def _verdict(declared_mib: int, needed_mib: float, proposed_mib: int | None, days: int) -> Verdict:
    if proposed_mib is None:
        return Verdict.UNUSED if days >= LEAST_DAYS else Verdict.UNKNOWN
    if needed_mib > declared_mib:
        return Verdict.RAISE
    if proposed_mib >= declared_mib:
        return Verdict.KEEP
    return Verdict.LOWER if days >= LEAST_DAYS else Verdict.SHORT


_Moments = list[tuple[float, float]]


def _apart(pods: Mapping[str, Sequence[UseSample]], clock: _Clock) -> tuple[_Moments, list[_Moments]]:
    """What was used (moment, MiB): warm, and of each start on its own. A pod starts where it uses memory and did not a
    moment before, while something was measured: what follows a hole in the measuring is no start."""
    before = clock.before()
    warm: _Moments = []
    starts: list[_Moments] = []
    for samples in pods.values():
        last, cold_until = -math.inf, -math.inf
        for sample in sorted((s for s in samples if s.mib > 0), key=lambda s: s.time):
            earlier = before.get(sample.time)
            if sample.time - last > clock.gap and earlier is not None and sample.time - earlier <= clock.gap:
                starts.append([])
                cold_until = sample.time + COLD_SECONDS
            last = sample.time
            (starts[-1] if sample.time < cold_until else warm).append((sample.time, sample.mib))
    return warm, starts


def _days(warm: _Moments, starts: Sequence[_Moments], clock: _Clock) -> list[Day]:
    peaks: tuple[dict[int, float], dict[int, float]] = ({}, {})
    for found, moments in zip(peaks, (warm, [moment for start in starts for moment in start]), strict=True):
        for time, mib in moments:
            day = int(time // DAY_SECONDS)
            found[day] = max(mib, found.get(day, 0.0))
    known = sorted({*clock.whole_days, *peaks[0], *peaks[1]})
    return [
        Day(day=day, warm_mib=peaks[0].get(day), cold_mib=peaks[1].get(day), whole=day in clock.whole_days)
        for day in known
    ]


def _growth(days: Sequence[Day]) -> tuple[float, float]:
    """MiB a day, and the highest that it leads to in AHEAD_DAYS; 0 and 0 where no growth is significant.

    Mann's test of a trend (Econometrica 13, 1945), Sen's slope and its upper bound (JASA 63, 1968).
    """
    points = [(day.day, day.warm_mib or 0.0) for day in days]
    count = len(points)
    if count < LEAST_DAYS:
        return 0.0, 0.0
    slopes = sorted((y - x) / (b - a) for i, (a, x) in enumerate(points) for b, y in points[i + 1 :])
    rising = sum(slope > 0 for slope in slopes) - sum(slope < 0 for slope in slopes)
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    if rising - 1 <= _SURE * deviation:
        return 0.0, 0.0
    slope = median(slopes)
    upper = slopes[min(math.ceil((len(slopes) + _SURE * deviation) / 2), len(slopes) - 1)]
    last = points[-1][0]
    return slope, max(mib + slope * (last - day) for day, mib in points) + upper * AHEAD_DAYS


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest that so large a share is not above."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
