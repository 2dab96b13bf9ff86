"""Compares the advice on a history with the week after the history."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from math import comb

from gpumem.proposal import HORIZON_DAYS, Advice, UseSample, advise
from tests.support.shapes import HOURS, Hour, hours

SEAT = "seat"
LARGE_MIB = 10**6
# A cell breaks its stated risk if a count like this one has at most this probability.
UNLIKELY = 1 / 1000
# A cell that states a risk for a smaller fraction of its seeds counts as a refusal.
LEAST_STATED = 1 / 10


def samples(past: Iterable[tuple[int, Hour]]) -> list[UseSample]:
    """Returns the samples of the measured hours. A sample of another seat shows that each of them was measured."""
    found = []
    for time, hour in past:
        if hour.measured:
            found.append(UseSample(time, "beside", 1))
            found += [UseSample(time, SEAT, mib, f"{hour.pod}-{n}") for n, mib in enumerate(hour.mib)]
    return found


def advice(past: Iterable[tuple[int, Hour]]) -> Advice:
    (found,) = advise({SEAT: LARGE_MIB}, samples(past))
    return found


@dataclass
class Cell:
    """The seeds of one shape and one length of history, and the weeks that exceeded a stated risk."""

    shape: str
    days: int
    seeds: int
    stated: int = 0
    above: int = 0
    risks: float = 0.0

    @property
    def refuses(self) -> bool:
        return self.stated < LEAST_STATED * self.seeds

    @property
    def breaks(self) -> bool:
        """Returns True if the weeks contradict the stated risk. A cell that refuses is judged by all of its seeds."""
        return self.stated > 0 and (
            tail(self.above, self.seeds if self.refuses else self.stated, self.risks / self.stated) < UNLIKELY
        )


def cell(shape: str, days: int, seeds: range) -> Cell:
    found = Cell(shape, days, len(seeds))
    for seed in seeds:
        every = [*islice(hours(shape, seed, days), (days + HORIZON_DAYS) * HOURS)]
        past, week = every[: days * HOURS], every[days * HOURS :]
        given = advice(past)
        if given.risk is None:
            continue
        found.stated += 1
        found.risks += given.risk
        found.above += any(mib > (given.proposed_mib or 0) for _, hour in week for mib in hour.mib)
    return found


def tail(count: int, trials: int, chance: float) -> float:
    """Returns the probability of at least `count` successes."""
    return sum(comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(count, trials + 1))
