"""Proposes a budget for a seat from a history of use, and computes an upper bound of the risk. Pure.

The upper bound of the risk assumes no distribution of the use. The module assumes that every order of the days is
equally likely. With this assumption, the next day's peak exceeds the peaks of n days with a probability of at most 1 /
(n + 1). If the use grows, later days have higher peaks. Therefore the code removes growth from the history, and adds
the growth of the next week at the end. The code counts starts of pods separately from days, because a pod starts less
often than once a day.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median

DAY_SECONDS = 86_400
# Each proposed budget is a multiple of this many MiB.
GRID_MIB = 100
# `advise` proposes a lower budget only after this many days, so that the history has each day of the week.
LEAST_DAYS = 7
# The number of days for which `advise` adds growth.
AHEAD_DAYS = 7
# The use within this many seconds after the start of a pod counts as a cold load.
COLD_SECONDS = 300
_GAP_SECONDS = 180.0
_GAP_STEPS = 2.5
_COVERED = 0.5  # A day counts as whole if at least this fraction of the day has measurements.
_SURE = 1.645  # The one-sided 95% quantile of the normal distribution.
_QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class UseSample:
    """The use of one device by a pod at one time.

    `time` is in seconds since 1970. `pressed` is true if the device was below its floor, so that the pod may have
    needed more memory.
    """

    time: float
    seat: str
    mib: float
    pod: str = ""
    pressed: bool = False


class Verdict(StrEnum):
    """The advice on a budget."""

    RAISE = "raise"
    LOWER = "lower"
    KEEP = "keep"
    SHORT = "short"  # The budget may be too large, but the history is too short for a lower budget.
    UNUSED = "unused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Day:
    """The highest use of a day, separately for the first minutes of pods (`cold_mib`) and for all later use
    (`warm_mib`).

    A peak is None if the day has no such use. Only days that are `whole` count for the risk.
    """

    day: int
    warm_mib: float | None
    cold_mib: float | None
    whole: bool

    @property
    def peak_mib(self) -> float:
        return max(self.warm_mib or 0.0, self.cold_mib or 0.0)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The advice on one seat, in MiB of one replica on one device. `proposed_mib` is None if the seat was never used.

    `risk_day` is an upper bound of the probability that the peak of a day exceeds the proposal. `risk_start` is an
    upper bound of the probability that the use at a pod's start exceeds the proposal. `risk_day` is None without a
    whole day, and `risk_start` is None without a start. `growth_mib_per_day` is 0 if the growth is not significant.
    `pressed` is true if the device was below its floor at the time of the highest peak.
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
    """Returns the advice on each seat.

    `declared` has the declared MiB of each seat. On a day without samples of a seat but with samples of other seats,
    the seat counts as not used.
    """
    by_pod: dict[str, dict[str, list[UseSample]]] = defaultdict(lambda: defaultdict(list))
    times: set[float] = set()
    for sample in samples:
        times.add(sample.time)
        by_pod[sample.seat][sample.pod].append(sample)
    clock = _Clock.of(times)
    return tuple(_advice(seat, mib, by_pod.get(seat, {}), clock) for seat, mib in declared.items())


@dataclass(frozen=True)
class _Clock:
    """The times of all measurements, the usual step between two times in seconds, and the days with enough
    measurements.
    """

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
    """Returns all samples outside of starts (warm use), and the samples of each start.

    A sample is a time and a number of MiB. A pod starts when it uses memory now but did not at the previous time. The
    first use after a gap in the measurements does not count as a start.
    """
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
    """Returns the growth in MiB a day, and the highest use that is expected within AHEAD_DAYS.

    The growth and the highest use are 0 if the growth is not significant. Source: Mann's test of a trend (Econometrica
    13, 1945), Sen's slope and its upper bound (JASA 63, 1968).
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
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
