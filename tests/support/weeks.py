"""Weeks of use of ten kinds, made up at random: what a seat's pods used, an hour a sample."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from gpumem.advice import DAY_SECONDS, GRID_MIB, UseSample, advise

HOUR = 3600
HOURS = 24
SEAT = "seat"
_Hours = Iterator[tuple[str, float]]  # the pod, and MiB; 0 while it does not run


def flat(rng: random.Random) -> _Hours:
    """A model that stays loaded."""
    level = rng.uniform(500, 8000)
    while True:
        yield "a", level + rng.gauss(0, 10)


def diurnal(rng: random.Random) -> _Hours:
    """Batches grow by day."""
    level, swing = rng.uniform(500, 4000), rng.uniform(500, 3000)
    for hour in count():
        busy = max(0.0, 1 - abs(hour % HOURS - 14) / 8)
        yield "a", level + swing * busy * rng.uniform(0.6, 1)


def weekly(rng: random.Random) -> _Hours:
    """One day of the week is the heavy one."""
    level, heavy = rng.uniform(500, 3000), rng.randrange(7)
    for hour in count():
        busy = hour // HOURS % 7 == heavy and 8 <= hour % HOURS < 18
        yield "a", level * (rng.uniform(1.5, 3) if busy else rng.uniform(0.9, 1.1))


def bursts(rng: random.Random) -> _Hours:
    """Rare large requests."""
    level = rng.uniform(500, 3000)
    while True:
        yield "a", level + (rng.expovariate(1 / level) if rng.random() < 0.02 else 0)


def cold_loads(rng: random.Random) -> _Hours:
    """A pod that comes and goes, and takes more while it loads."""
    level, pod, left = rng.uniform(500, 4000), 0, 0
    while True:
        if left == 0 and rng.random() < 0.1:
            pod, left = pod + 1, rng.randrange(2, 12)
            yield f"p{pod}", level * rng.uniform(1.2, 2)
        elif left > 0:
            left -= 1
            yield f"p{pod}", level + rng.gauss(0, 20)
        else:
            yield f"p{pod}", 0.0


def slow_leak(rng: random.Random) -> _Hours:
    """It grows by some MiB a day, and nobody restarts it."""
    level, leak = rng.uniform(500, 3000), rng.uniform(5, 60) / HOURS
    for hour in count():
        yield "a", level + leak * hour + rng.gauss(0, 15)


def step_after_an_upgrade(rng: random.Random) -> _Hours:
    """A new version takes more, from a day on that may be among those held out."""
    level, at, more = rng.uniform(500, 4000), rng.randrange(35 * HOURS), rng.uniform(1.1, 1.6)
    for hour in count():
        yield "a", level * (more if hour >= at else 1) + rng.gauss(0, 15)


def model_swaps(rng: random.Random) -> _Hours:
    """One of several models at a time, for hours."""
    models = [rng.uniform(500, 7000) for _ in range(rng.randrange(2, 7))]
    while True:
        model = rng.choice(models)
        for _ in range(rng.randrange(1, 30)):
            yield "a", model + rng.gauss(0, 15)


def heavy_tail(rng: random.Random) -> _Hours:
    """Peaks without a mean size."""
    level = rng.uniform(300, 1000)
    while True:
        yield "a", level * rng.paretovariate(4)


def restarts(rng: random.Random) -> _Hours:
    """A leak that a restart cures, every few days."""
    level, leak = rng.uniform(500, 3000), rng.uniform(20, 200) / HOURS
    for pod in count():
        for hour in range(rng.randrange(HOURS, 6 * HOURS)):
            yield f"p{pod}", level + leak * hour + rng.gauss(0, 15)


KINDS: Mapping[str, Callable[[random.Random], _Hours]] = {
    kind.__name__.replace("_", " "): kind
    for kind in (
        flat,
        diurnal,
        weekly,
        bursts,
        cold_loads,
        slow_leak,
        step_after_an_upgrade,
        model_swaps,
        heavy_tail,
        restarts,
    )
}


def history(kind: str, seed: int, days: int) -> list[UseSample]:
    """So many days of a kind, from 1970 on. Another sample each hour says that somebody measured."""
    hours = zip(range(days * HOURS), KINDS[kind](random.Random(f"{kind} {seed}")), strict=False)  # noqa: S311 (a test)
    return [
        UseSample(hour * HOUR, seat, mib if seat == SEAT else 1.0, pod)
        for hour, (pod, mib) in hours
        for seat in (SEAT, "beside")
    ]


@dataclass(frozen=True)
class Violations:
    """Of held-out weeks: the days, those with a peak above what was proposed, and the most that was promised."""

    days: int
    above: int
    promised: float
    headroom: float

    @property
    def rate(self) -> float:
        return self.above / self.days


def backtest(kind: str, *, seeds: int, days: int) -> Violations:
    """Proposals from so many days against the seven that follow; `headroom` is what was proposed beyond the peak that
    came, as a mean share of it."""
    found = [held_out(history(kind, seed, days + 7), days) for seed in range(seeds)]
    room = sum(each.headroom for each in found) / seeds
    return Violations(7 * seeds, sum(each.above for each in found), 1 / (days + 1), room)


def held_out(samples: Sequence[UseSample], days: int) -> Violations:
    """A proposal from so many days of them against the seven that follow."""
    begin = days * DAY_SECONDS
    (found,) = advise({SEAT: GRID_MIB}, (each for each in samples if each.time < begin))
    proposed = found.proposed_mib or 0
    peaks = [0.0] * 7
    for each in samples:
        if each.time >= begin and each.seat == SEAT:
            day = int(each.time - begin) // DAY_SECONDS
            peaks[day] = max(peaks[day], each.mib)
    room = proposed / max(peaks) - 1 if max(peaks) else 0.0
    return Violations(7, sum(peak > proposed for peak in peaks), 1 / (days + 1), room)
