"""Judges if the daily peaks of a seat rise, and if they rise steadily or by one step. Pure.

Sources: Mann's test of a trend (Econometrica 13, 1945) and Sen's slope (JASA 63, 1968).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

# The fewest days with which the test can find a rise.
LEAST_DAYS = 7
_MOST_DAYS = 180  # The test needs the square of this many steps.
# The 99% quantile and the 84% quantile of the standard normal distribution.
_SURE, _LIKELY = 2.326, 1.0

Point = tuple[int, float]  # The number of a day, and the peak or the mean use of the day in MiB.


@dataclass(frozen=True)
class Growth:
    """A steady rise of the daily peaks. `slope` is the rise each day. `level` is the highest peak, after each peak has
    risen until the last day. If the peaks rise by a fraction, `level` and `slope` are logarithms of MiB, else MiB.
    """

    level: float
    slope: float
    by_fraction: bool

    @property
    def mib_per_day(self) -> float:
        return math.exp(self.level) * math.expm1(self.slope) if self.by_fraction else self.slope

    def after(self, days: float) -> float:
        """Returns the highest use in MiB that is expected until `days` days after the last day."""
        found = self.level + self.slope * days
        return math.exp(found) if self.by_fraction else found

    def days_until(self, mib: float) -> float:
        """Returns the number of days until the use reaches `mib`, from the last day."""
        target = math.log(mib) if self.by_fraction else mib
        return max((target - self.level) / self.slope, 0.0)


@dataclass(frozen=True)
class Step:
    """A rise of the daily peaks by one step. `day` is the first day after the step."""

    day: int


def rise(points: Sequence[Point]) -> Growth | Step | None:
    """Returns the kind of rise that fits the peaks best, or None if the peaks do not rise for sure.

    The three kinds are a step, an equal amount each day, and an equal fraction each day. The best fit has the smallest
    sum of the absolute differences.
    """
    points = points[-_MOST_DAYS:]
    if len(points) < LEAST_DAYS or _mann(points) <= _SURE:
        return None
    peaks = [mib for _, mib in points]
    fits: list[tuple[float, Growth | Step]] = [
        (_off(peaks[:at]) + _off(peaks[at:]), Step(points[at][0])) for at in range(1, len(points))
    ]
    for by_fraction in (False, True) if min(peaks) > 0 else (False,):
        line = [(day, math.log(mib) if by_fraction else mib) for day, mib in points]
        slope = median(_slopes(line))
        middle = median(value - slope * day for day, value in line)
        fitted = [middle + slope * day for day, _ in line]
        off = sum(abs(mib - (math.exp(fit) if by_fraction else fit)) for mib, fit in zip(peaks, fitted, strict=True))
        level = max(value + slope * (line[-1][0] - day) for day, value in line)
        if slope > 0:
            fits.append((off, Growth(level, slope, by_fraction)))
    return min(fits, key=lambda fit: fit[0])[1]


def may_rise(points: Sequence[Point]) -> bool:
    """Returns True if the values rise more than chance usually makes them rise."""
    return _mann(points[-_MOST_DAYS:]) > _LIKELY


def _mann(points: Sequence[Point]) -> float:
    """Returns the statistic of Mann's test, which is about standard normal if the values have no trend."""
    count = len(points)
    rising = sum((slope > 0) - (slope < 0) for slope in _slopes(points))
    return (rising - 1) / math.sqrt(max(count * (count - 1) * (2 * count + 5) / 18, 1.0))


def _slopes(points: Sequence[Point]) -> Iterator[float]:
    return ((y - x) / (b - a) for i, (a, x) in enumerate(points) for b, y in points[i + 1 :])


def _off(values: Sequence[float]) -> float:
    middle = median(values)
    return sum(abs(value - middle) for value in values)
