"""Makes random histories of a seat's use, with one peak for each hour. A shape is a pattern of use.

The shapes have names, and the seed fixes each history. A history has a random phase: it begins at any hour of the week.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from math import exp

HOUR = 3600
HOURS = 24
WEEK = 7 * HOURS


@dataclass(frozen=True)
class Hour:
    """The peak of each pod in one hour, in MiB. `measured` is false if Prometheus has no reading of the hour."""

    mib: tuple[float, ...]
    pod: str = "a"
    measured: bool = True


# A shape gets a source of random numbers and the number of hours in the history.
Shape = Callable[[random.Random, int], Iterator[Hour]]
SHAPES: dict[str, Shape] = {}


def shape(make: Shape) -> Shape:
    SHAPES[make.__name__.replace("_", " ")] = make
    return make


def hours(name: str, seed: int, days: int) -> Iterator[tuple[int, Hour]]:
    """Yields the hours of a shape without an end, each with its time in seconds. The history has `days` days."""
    rng = random.Random(f"{name} {seed}")  # noqa: S311 (a test)
    start = 2900 * WEEK + rng.randrange(WEEK)
    for number, found in enumerate(SHAPES[name](rng, days * HOURS)):
        yield (start + number) * HOUR, found


def one(mib: float, pod: str = "a") -> Hour:
    return Hour((max(mib, 0.0),), pod)


def noise(rng: random.Random, mib: float = 15) -> float:
    return rng.gauss(0, mib)


def phase(rng: random.Random, period: int) -> Iterator[int]:
    begin = rng.randrange(period)
    return (hour % period for hour in count(begin))


@shape
def noisy(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 8000)
    spread = level * rng.uniform(0.01, 0.2)
    while True:
        yield one(level + noise(rng, spread))


@shape
def daily(rng: random.Random, _: int) -> Iterator[Hour]:
    level, swing = rng.uniform(500, 4000), rng.uniform(500, 3000)
    for hour in phase(rng, HOURS):
        yield one(level + swing * max(0.0, 1 - abs(hour - 14) / 8) * rng.uniform(0.6, 1))


@shape
def weekly(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 3000)
    for hour in phase(rng, WEEK):
        yield one(level * (rng.uniform(1.5, 3) if 8 <= hour < 18 else rng.uniform(0.9, 1.1)))


@shape
def office_hours(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 6000)
    for hour in phase(rng, WEEK):
        works = hour < 5 * HOURS and 9 <= hour % HOURS < 17
        yield one(level * rng.uniform(0.7, 1.2) if works else 0, f"day{hour // HOURS}")


@shape
def nightly_batch(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 3000)
    for hour in phase(rng, HOURS):
        yield one(level * (1 + rng.lognormvariate(0, 0.4)) if hour == 2 else level + noise(rng))


@shape
def linear_growth(rng: random.Random, _: int) -> Iterator[Hour]:
    level, more = rng.uniform(500, 3000), rng.uniform(10, 100) / HOURS
    for hour in count():
        yield one(level + more * hour + noise(rng))


@shape
def three_percent_growth(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(300, 2000)
    for hour in count():
        yield one(level * exp(0.03 * hour / HOURS) * rng.uniform(0.9, 1))


@shape
def bursts(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 3000)
    while True:
        yield one(level + (rng.expovariate(1 / level) if rng.random() < 0.02 else 0))


@shape
def rare_spikes(rng: random.Random, _: int) -> Iterator[Hour]:
    level, high = rng.uniform(500, 3000), rng.uniform(1.5, 4)
    while True:
        yield one(level * high if rng.random() < 1 / (10 * HOURS) else level + noise(rng))


@shape
def heavy_tail(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(300, 1000)
    while True:
        yield one(level * rng.paretovariate(4))


@shape
def restarts(rng: random.Random, _: int) -> Iterator[Hour]:
    level, leak = rng.uniform(500, 3000), rng.uniform(20, 200) / HOURS
    begun = rng.randrange(4 * HOURS)
    for pod in count():
        for hour in range(begun, max(begun + 1, rng.randrange(HOURS, 6 * HOURS))):
            yield one(level + leak * hour + noise(rng), f"p{pod}")
        begun = 0


@shape
def cold_loads(rng: random.Random, _: int) -> Iterator[Hour]:
    level, pod, left = rng.uniform(500, 4000), 0, 0
    while True:
        if left == 0 and rng.random() < 0.1:
            pod, left = pod + 1, rng.randrange(2, 12)
            yield one(level * rng.uniform(1.2, 2), f"p{pod}")
        elif left > 0:
            left -= 1
            yield one(level + noise(rng), f"p{pod}")
        else:
            yield one(0)


@shape
def a_gap_each_night(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 3000)
    for hour in phase(rng, HOURS):
        night = 2 <= hour < 4
        yield Hour(one(level * (1 + night * rng.lognormvariate(0, 0.4)) + noise(rng)).mib, measured=not night)


@shape
def a_sample_each_noon(rng: random.Random, _: int) -> Iterator[Hour]:
    for hour, found in zip(phase(rng, HOURS), daily(rng, 0), strict=False):
        yield Hour(found.mib, measured=hour == 12)
