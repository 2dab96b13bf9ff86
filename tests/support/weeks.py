"""Makes random weeks of a seat's use, with a sample for each hour. Budgets for these weeks are hard to predict."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from gpumem.proposal import DAY_SECONDS, GRID_MIB, UseSample, advise

HOUR = 3600
HOURS = 24
SEAT = "seat"
_Hours = Iterator[tuple[str, float]]  # The pod and its use in MiB in each hour. The use is 0 if no pod runs.


def bursts(rng: random.Random) -> _Hours:
    level = rng.uniform(500, 3000)
    while True:
        yield "a", level + (rng.expovariate(1 / level) if rng.random() < 0.02 else 0)


def cold_loads(rng: random.Random) -> _Hours:
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


def step_after_an_upgrade(rng: random.Random) -> _Hours:
    level, at, more = rng.uniform(500, 4000), rng.randrange(35 * HOURS), rng.uniform(1.1, 1.6)
    for hour in count():
        yield "a", level * (more if hour >= at else 1) + rng.gauss(0, 15)


def heavy_tail(rng: random.Random) -> _Hours:
    level = rng.uniform(300, 1000)
    while True:
        yield "a", level * rng.paretovariate(4)


def restarts(rng: random.Random) -> _Hours:
    level, leak = rng.uniform(500, 3000), rng.uniform(20, 200) / HOURS
    for pod in count():
        for hour in range(rng.randrange(HOURS, 6 * HOURS)):
            yield f"p{pod}", level + leak * hour + rng.gauss(0, 15)


KINDS: Mapping[str, Callable[[random.Random], _Hours]] = {
    kind.__name__.replace("_", " "): kind for kind in (bursts, cold_loads, step_after_an_upgrade, heavy_tail, restarts)
}


def history(kind: str, seed: int, days: int) -> list[UseSample]:
    hours = zip(range(days * HOURS), KINDS[kind](random.Random(f"{kind} {seed}")), strict=False)  # noqa: S311 (a test)
    return [
        UseSample(hour * HOUR, seat, mib if seat == SEAT else 1.0, pod)
        for hour, (pod, mib) in hours
        for seat in (SEAT, "beside")
    ]


@dataclass(frozen=True)
class Violations:
    days: int
    above: int
    promised: float


def backtest(kind: str, *, seeds: int, days: int) -> Violations:
    above = sum(days_above(history(kind, seed, days + 7), days) for seed in range(seeds))
    return Violations(7 * seeds, above, 1 / (days + 1))


def days_above(samples: Sequence[UseSample], days: int) -> int:
    begin = days * DAY_SECONDS
    (found,) = advise({SEAT: GRID_MIB}, (each for each in samples if each.time < begin))
    proposed = found.proposed_mib or 0
    peaks = [0.0] * 7
    for each in samples:
        if each.time >= begin and each.seat == SEAT:
            day = int(each.time - begin) // DAY_SECONDS
            peaks[day] = max(peaks[day], each.mib)
    return sum(peak > proposed for peak in peaks)
