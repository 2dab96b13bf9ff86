"""Proposes a budget for a seat from a history of use, and computes an upper bound of the risk. Pure.

The upper bound of the risk assumes no distribution of the use. The module assumes that the coming week is like the
weeks of the history: each of them is equally likely to have the highest peak. With this assumption, the coming week
exceeds the peaks of n weeks with a probability of at most 1 / (n + 1). The module states 1 / n, because the last week
also tests the proposal. Without such a margin, use that repeats every two weeks would exceed the risk of two weeks.
The module counts a history in measured hours, because many samples can be of the same hour.

The module states no risk if the history contradicts the assumption. The use may rise, or the last week may have
exceeded all earlier weeks, or the history may be too short to contain two weeks.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from statistics import fmean, median

from gpumem import trend
from gpumem.trend import Growth, Step
from tenancy.fit.smallest_change import GRID_MIB

HOUR_SECONDS = 3600
DAY_SECONDS = 86_400
# The stated risk is the risk within this many days.
HORIZON_DAYS = 7
# `advise` states a risk only if this many days were measured: two weeks, less one day of gaps.
LEAST_DAYS = 13
# The use within this many seconds after the start of a pod counts as a cold load.
COLD_SECONDS = 300
_MOST_DAYS = 365  # A date that is more days away is not named.
_DAY, _WEEK = 24, 24 * HORIZON_DAYS  # in hours
_GAP_SECONDS = 180.0
_GAP_STEPS = 2.5
_COVERED = 0.5  # The fraction of each hour of the day, and of each day of the week, that must be measured.
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
    GROWS = "grows"  # The use grows, and does not reach the budget within the horizon.
    SHORT = "short"  # The budget may be too large, but no risk can be stated for a lower budget.
    UNUSED = "unused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The advice on one seat, in MiB of one replica on one device. `proposed_mib` is None if the seat was never used.

    `risk` is an upper bound of the probability that the use exceeds the proposal within the next HORIZON_DAYS days. If
    `risk` is None, `no_risk` has the reason. `days` is the measured time in days that the risk counts, since the day
    `since`. `since` is None if the risk counts the whole history. `growth_mib_per_day` is 0 if the use does not grow.
    `reaches` is the day on which the growth reaches the budget, or the proposed budget if the verdict is to raise it.
    `reaches` is None without growth, and if that day is more than a year away. `pressed` is true if the device was
    below its floor at the time of the highest peak.
    """

    seat: str
    declared_mib: int
    verdict: Verdict
    proposed_mib: int | None
    days: float
    since: str | None
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
    reaches: str | None
    horizon_days: int
    risk: float | None
    no_risk: str | None
    pressed: bool


def advise(declared: Mapping[str, int], samples: Iterable[UseSample]) -> tuple[Advice, ...]:
    """Returns the advice on each seat.

    `declared` has the declared MiB of each seat. At a time without samples of a seat but with samples of other seats,
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
    """The times of all measurements, the usual step between two times in seconds, and the measured hours. An hour is
    measured if it has a sample. `end` is the hour after the last measured hour.
    """

    step: float
    times: Sequence[float]
    hours: frozenset[int]
    end: int

    @staticmethod
    def of(times: Iterable[float]) -> "_Clock":
        ordered = sorted(times)
        steps = [later - earlier for earlier, later in pairwise(ordered)]
        hours = frozenset(hour_of(time) for time in ordered)
        return _Clock(max(median(steps), 1.0) if steps else 60.0, ordered, hours, max(hours, default=-1) + 1)

    @property
    def gap(self) -> float:
        return max(_GAP_SECONDS, _GAP_STEPS * self.step)

    def before(self) -> Mapping[float, float]:
        return {later: earlier for earlier, later in pairwise(self.times)}

    def day(self, hour: int) -> int:
        """Returns the day of an hour. Day -1 has the last 24 hours of the history."""
        return (hour - self.end) // _DAY


def hour_of(time: float) -> int:
    return int(time // HOUR_SECONDS)


@dataclass(frozen=True)
class _Judged:
    """The history that counts, and its risk."""

    days: float
    since: str | None = None
    growth: Growth | None = None
    no_risk: str | None = None

    @property
    def risk(self) -> float | None:
        return None if self.no_risk else HORIZON_DAYS / self.days


def _advice(seat: str, declared_mib: int, pods: Mapping[str, Sequence[UseSample]], clock: _Clock) -> Advice:
    warm, starts = _apart(pods, clock)
    used = sorted(mib for _, mib in warm)
    every = [*warm, *(moment for start in starts for moment in start)]
    cold = sorted(max(mib for _, mib in start) for start in starts)
    peaks: dict[int, float] = {}
    for time, mib in every:
        peaks[hour_of(time)] = max(mib, peaks.get(hour_of(time), 0.0))
    highest = max(peaks.values(), default=0.0)
    judged = _judged(peaks, clock)
    growth = judged.growth
    ahead_mib = max(highest, growth.after(HORIZON_DAYS)) if growth else highest
    proposed_mib = on_grid(ahead_mib) if highest > 0 else None
    pressed = any(s.pressed and s.mib >= highest for samples in pods.values() for s in samples)
    verdict = _verdict(declared_mib, ahead_mib, judged, pressed=pressed)
    p50, p95, p99 = (_quantile(used, share) for share in _QUANTILES)
    target = proposed_mib if verdict is Verdict.RAISE and proposed_mib else declared_mib
    return Advice(
        seat=seat,
        declared_mib=declared_mib,
        verdict=verdict,
        proposed_mib=proposed_mib,
        days=judged.days,
        since=judged.since,
        days_above=len({clock.day(hour) for hour, mib in peaks.items() if mib > declared_mib}),
        above=sum(mib > declared_mib for _, mib in every) / len(every) if every else 0.0,
        used_p50_mib=p50,
        used_p95_mib=p95,
        used_p99_mib=p99,
        used_max_mib=used[-1] if used else 0.0,
        starts=len(starts),
        cold_p50_mib=median(cold) if cold else None,
        cold_max_mib=cold[-1] if cold else None,
        growth_mib_per_day=growth.mib_per_day if growth else 0.0,
        reaches=_reaches(growth, target, clock),
        horizon_days=HORIZON_DAYS,
        risk=judged.risk,
        no_risk=judged.no_risk,
        pressed=pressed,
    )


def on_grid(mib: float) -> int:
    return math.ceil(mib / GRID_MIB) * GRID_MIB


def _verdict(declared_mib: int, ahead_mib: float, judged: _Judged, *, pressed: bool) -> Verdict:
    if ahead_mib == 0:
        return Verdict.UNUSED if judged.days >= LEAST_DAYS else Verdict.UNKNOWN
    if ahead_mib > declared_mib:
        return Verdict.RAISE
    if judged.growth:
        return Verdict.GROWS
    if on_grid(ahead_mib) >= declared_mib:
        return Verdict.KEEP
    return Verdict.SHORT if pressed or judged.no_risk else Verdict.LOWER


def _judged(peaks: Mapping[int, float], clock: _Clock) -> _Judged:
    """Returns the history that counts for the risk.

    The history of a seat begins with its first use. If the use rose by a step, the history begins after the step.
    """
    begin = min((hour for hour, mib in peaks.items() if mib > 0), default=min(clock.hours, default=0))
    since = None
    while True:
        hours = {hour for hour in clock.hours if hour >= begin}
        by_day = _by_day(peaks, hours, clock)
        found = trend.rise([(day, max(used)) for day, used in by_day])
        if not isinstance(found, Step):
            break
        begin = clock.end + found.day * _DAY
        since = _date(begin)
    days = len(hours) / _DAY
    if found:
        return _Judged(days, since, found, "its use grows")
    no_risk = _too_short(days, since) or _unseen(hours, begin, clock) or _newest(peaks, begin, clock)
    if not no_risk and trend.may_rise([(day, fmean(used)) for day, used in by_day]):
        no_risk = "its mean use rises from day to day, and more days must show if this is chance"
    return _Judged(days, since, None, no_risk)


def _by_day(peaks: Mapping[int, float], hours: Set[int], clock: _Clock) -> list[tuple[int, list[float]]]:
    """Returns the peaks of the measured hours, by day. Leaves out days that were measured too rarely."""
    found: dict[int, list[float]] = defaultdict(list)
    for hour in hours:
        found[clock.day(hour)].append(peaks.get(hour, 0.0))
    return sorted((day, used) for day, used in found.items() if len(used) >= _COVERED * _DAY)


def _too_short(days: float, since: str | None) -> str | None:
    if days >= LEAST_DAYS:
        return None
    after = f" since its use rose on {since}" if since else ""
    return f"{LEAST_DAYS} days must be measured hour by hour, and {days:.1f} were{after}"


def _unseen(hours: Set[int], begin: int, clock: _Clock) -> str | None:
    """Returns a refusal if an hour of the day or a day of the week was measured too rarely."""
    parts: Mapping[str, Callable[[int], int]] = {
        "each hour of the day": lambda hour: hour % _DAY,
        "each day of the week": lambda hour: hour // _DAY % HORIZON_DAYS,
    }
    for name, part in parts.items():
        seen, every = Counter(map(part, hours)), Counter(map(part, range(begin, clock.end)))
        if any(seen[each] < _COVERED * count for each, count in every.items()):
            return f"{name} must be measured at least half of the time"
    return None


def _newest(peaks: Mapping[int, float], begin: int, clock: _Clock) -> str | None:
    """Returns a refusal if a proposal from the time before the last week did not hold in the last week."""
    last = clock.end - _WEEK
    before = on_grid(max((mib for hour, mib in peaks.items() if begin <= hour < last), default=0.0))
    newest = max((mib for hour, mib in peaks.items() if hour >= last), default=0.0)
    if newest <= before:
        return None
    return f"the last {HORIZON_DAYS} days used up to {newest:.0f}, and the days before would have proposed {before}"


def _date(hour: int, after_days: float = 0.0) -> str:
    return f"{datetime.fromtimestamp(hour * HOUR_SECONDS + after_days * DAY_SECONDS, UTC):%Y-%m-%d}"


def _reaches(growth: Growth | None, mib: int, clock: _Clock) -> str | None:
    days = growth.days_until(mib) if growth else math.inf
    return _date(clock.end, days) if days <= _MOST_DAYS else None


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


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
