"""Makes random histories of a seat's use, with one peak for each hour. A shape is a pattern of use.

The shapes have names, and the seed fixes each history. A history has a random phase: it begins at any hour of the week.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from math import exp, pi, sin

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
def constant(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 8000)
    while True:
        yield one(level)


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
def weekdays(rng: random.Random, _: int) -> Iterator[Hour]:
    level, swing = rng.uniform(500, 3000), rng.uniform(500, 3000)
    for hour in phase(rng, WEEK):
        busy = (1 if hour < 5 * HOURS else 0.3) * max(0.0, sin(2 * pi * hour / HOURS))
        yield one(level + swing * busy * rng.uniform(0.7, 1))


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
def weekly_batch(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 3000)
    for hour in phase(rng, WEEK):
        yield one(level * (1 + rng.lognormvariate(0, 0.4)) if hour == 2 else level + noise(rng))


@shape
def batch_every_second_week(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 3000)
    for hour in phase(rng, 2 * WEEK):
        yield one(level * (1 + rng.lognormvariate(0, 0.2)) if hour == 2 else level + noise(rng))


@shape
def batch_every_month(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 3000)
    for hour in phase(rng, rng.randrange(28, 32) * HOURS):
        yield one(level * 2 + noise(rng) if hour == 2 else level + noise(rng))


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
def growth_of_a_daily_cycle(rng: random.Random, _: int) -> Iterator[Hour]:
    level, rate = rng.uniform(500, 2000), rng.uniform(0.005, 0.03)
    for number, hour in enumerate(phase(rng, HOURS)):
        busy = max(0.0, 1 - abs(hour - 14) / 8)
        yield one(level * exp(rate * number / HOURS) * (1 + busy * rng.uniform(0.5, 1)))


@shape
def slow_growth_in_noise(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(1000, 5000)
    rate, spread = level * rng.uniform(0.001, 0.006) / HOURS, level * rng.uniform(0.02, 0.1)
    for hour in count():
        yield one(level + rate * hour + noise(rng, spread))


@shape
def growth_that_ends(rng: random.Random, _: int) -> Iterator[Hour]:
    level, more, days = rng.uniform(500, 3000), rng.uniform(500, 3000), rng.uniform(2, 15)
    for hour in count():
        yield one(level + more * (1 - exp(-hour / HOURS / days)) + noise(rng, 30))


@shape
def growth_that_begins(rng: random.Random, length: int) -> Iterator[Hour]:
    level, more, at = rng.uniform(500, 3000), rng.uniform(20, 100) / HOURS, rng.randrange(length)
    for hour in count():
        yield one(level + more * max(0, hour - at) + noise(rng, 30))


@shape
def bursts(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 3000)
    while True:
        yield one(level + (rng.expovariate(1 / level) if rng.random() < 0.02 else 0))


@shape
def bursts_in_clusters(rng: random.Random, _: int) -> Iterator[Hour]:
    level, busy = rng.uniform(500, 3000), False
    while True:
        busy = rng.random() < (0.96 if busy else 0.006)
        yield one(level * (1 + rng.expovariate(2) if busy else 1))


@shape
def rare_spikes(rng: random.Random, _: int) -> Iterator[Hour]:
    level, high = rng.uniform(500, 3000), rng.uniform(1.5, 4)
    while True:
        yield one(level * high if rng.random() < 1 / (10 * HOURS) else level + noise(rng))


@shape
def rare_spikes_of_any_height(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(300, 2000)
    while True:
        yield one(level * rng.paretovariate(1.5) if rng.random() < 1 / (5 * HOURS) else level + noise(rng))


@shape
def heavy_tail(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(300, 1000)
    while True:
        yield one(level * rng.paretovariate(4))


@shape
def regime_changes(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 6000)
    while True:
        if rng.random() < 1 / (5 * HOURS):
            level = rng.uniform(500, 6000)
        yield one(level + noise(rng))


@shape
def rare_regime_changes(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 6000)
    while True:
        if rng.random() < 1 / (20 * HOURS):
            level = rng.uniform(500, 6000)
        yield one(level * rng.uniform(0.9, 1))


@shape
def two_regimes(rng: random.Random, _: int) -> Iterator[Hour]:
    levels, now = (rng.uniform(500, 3000), rng.uniform(3000, 6000)), rng.randrange(2)
    while True:
        if rng.random() < 1 / (7 * HOURS):
            now = 1 - now
        yield one(levels[now] * rng.uniform(0.9, 1))


@shape
def step_up(rng: random.Random, length: int) -> Iterator[Hour]:
    level, more, at, spread = rng.uniform(500, 4000), rng.uniform(1.05, 1.6), rng.randrange(length), rng.uniform(0, 0.1)
    for hour in count():
        yield one(level * (more if hour >= at else 1) * (1 + noise(rng, spread)))


@shape
def step_down(rng: random.Random, length: int) -> Iterator[Hour]:
    level, less, at, spread = rng.uniform(500, 4000), rng.uniform(0.4, 0.95), rng.randrange(length), rng.uniform(0, 0.1)
    for hour in count():
        yield one(level * (less if hour >= at else 1) * (1 + noise(rng, spread)))


@shape
def upgrades(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 4000)
    while True:
        if rng.random() < 1 / (60 * HOURS):
            level *= rng.uniform(0.8, 1.6)
        yield one(level + noise(rng))


@shape
def plateau(rng: random.Random, length: int) -> Iterator[Hour]:
    level, more, at = rng.uniform(500, 4000), rng.uniform(1.2, 2), rng.randrange(length)
    lasts = rng.randrange(HOURS, 6 * HOURS)
    for hour in count():
        yield one(level * (more if at <= hour < at + lasts else 1) * rng.uniform(0.9, 1))


@shape
def restarts(rng: random.Random, _: int) -> Iterator[Hour]:
    level, leak = rng.uniform(500, 3000), rng.uniform(20, 200) / HOURS
    begun = rng.randrange(4 * HOURS)
    for pod in count():
        for hour in range(begun, max(begun + 1, rng.randrange(HOURS, 6 * HOURS))):
            yield one(level + leak * hour + noise(rng), f"p{pod}")
        begun = 0


@shape
def sawtooth(rng: random.Random, _: int) -> Iterator[Hour]:
    level, leak = rng.uniform(500, 3000), rng.uniform(20, 200) / HOURS
    for hour in phase(rng, 3 * HOURS):
        yield one(level + leak * hour + noise(rng))


@shape
def slow_sawtooth(rng: random.Random, _: int) -> Iterator[Hour]:
    level, leak = rng.uniform(500, 3000), rng.uniform(20, 200) / HOURS
    for hour in phase(rng, rng.randrange(8 * HOURS, 25 * HOURS)):
        yield one(level + leak * hour + noise(rng))


@shape
def slow_leak_with_restarts(rng: random.Random, _: int) -> Iterator[Hour]:
    level, leak, hour = rng.uniform(500, 3000), rng.uniform(20, 200) / HOURS, rng.randrange(10 * HOURS)
    while True:
        hour = 0 if rng.random() < 1 / (12 * HOURS) else hour + 1
        yield one(level + leak * hour + noise(rng))


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
def rare_starts(rng: random.Random, _: int) -> Iterator[Hour]:
    level, pod = rng.uniform(500, 4000), 0
    while True:
        starts = rng.random() < 1 / (8 * HOURS)
        pod += starts
        yield one(level * rng.uniform(1.2, 2) if starts else level + noise(rng), f"p{pod}")


@shape
def model_swaps(rng: random.Random, _: int) -> Iterator[Hour]:
    models = [rng.uniform(500, 7000) for _ in range(rng.randrange(2, 7))]
    while True:
        model = rng.choice(models)
        for _ in range(rng.randrange(1, 30)):
            yield one(model + noise(rng))


@shape
def seldom_used(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 4000)
    while True:
        if rng.random() < 1 / (6 * HOURS):
            for _ in range(rng.randrange(1, 5)):
                yield one(level * rng.uniform(0.7, 1.3))
        yield one(0)


@shape
def new_workload(rng: random.Random, length: int) -> Iterator[Hour]:
    level, at = rng.uniform(500, 4000), rng.randrange(length)
    for hour in count():
        yield one(level * (1 + noise(rng, 0.1)) if hour >= at else 0)


@shape
def random_walk(rng: random.Random, _: int) -> Iterator[Hour]:
    mib = rng.uniform(2000, 6000)
    step = mib * rng.uniform(0.002, 0.02)
    while True:
        mib = abs(mib + noise(rng, step))
        yield one(mib)


@shape
def walk_around_a_level(rng: random.Random, _: int) -> Iterator[Hour]:
    level, off = rng.uniform(2000, 6000), 0.0
    while True:
        off = off * (1 - 1 / (4 * HOURS)) + noise(rng, level * 0.02)
        yield one(level + off)


@shape
def decline(rng: random.Random, _: int) -> Iterator[Hour]:
    level, rate = rng.uniform(2000, 8000), rng.uniform(0.005, 0.03)
    for hour in count():
        yield one(level * exp(-rate * hour / HOURS) * rng.uniform(0.9, 1))


@shape
def replicas_that_come_and_go(rng: random.Random, _: int) -> Iterator[Hour]:
    level, pods = rng.uniform(500, 3000), 2
    while True:
        if rng.random() < 1 / (2 * HOURS):
            pods = rng.randrange(1, 6)
        yield Hour(tuple(level * rng.uniform(0.7, 1.3) for _ in range(pods)))


@shape
def short_gaps(rng: random.Random, _: int) -> Iterator[Hour]:
    level = rng.uniform(500, 3000)
    while True:
        for _ in range(rng.randrange(20, 140)):
            yield one(level * rng.lognormvariate(0, 0.3))
        for _ in range(rng.randrange(1, 9)):
            yield Hour(one(level * rng.lognormvariate(0, 0.3)).mib, measured=False)


@shape
def a_gap_of_days(rng: random.Random, length: int) -> Iterator[Hour]:
    level, at, lasts = rng.uniform(500, 3000), rng.randrange(length), rng.randrange(HOURS, WEEK)
    for hour in count():
        yield Hour(one(level * rng.lognormvariate(0, 0.3)).mib, measured=not at <= hour < min(at + lasts, length))


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


@shape
def training_jobs(rng: random.Random, _: int) -> Iterator[Hour]:
    for job in count():
        for _ in range(rng.randrange(1, 20)):
            yield one(0)
        mib = 1000 * rng.lognormvariate(1, 0.6)
        for _ in range(rng.randrange(2, 40)):
            yield one(mib * rng.uniform(0.9, 1), f"job{job}")


@shape
def cycle_of_twenty_days(rng: random.Random, _: int) -> Iterator[Hour]:
    level, swing = rng.uniform(1500, 4000), rng.uniform(200, 1500)
    for hour in phase(rng, 20 * HOURS):
        yield one(level + swing * sin(2 * pi * hour / (20 * HOURS)) + noise(rng, 50))


@shape
def long_memory(rng: random.Random, _: int) -> Iterator[Hour]:
    level, parts = rng.uniform(2000, 5000), {days * HOURS: 0.0 for days in (0.5, 2, 8, 32)}
    for each in parts:
        parts[each] = rng.gauss(0, 1)
    while True:
        for each, value in parts.items():
            keep = 1 - 1 / each
            parts[each] = value * keep + rng.gauss(0, (1 - keep**2) ** 0.5)
        yield one(level * (1 + 0.08 * sum(parts.values())))


@shape
def weekdays_that_grow(rng: random.Random, _: int) -> Iterator[Hour]:
    level, rate = rng.uniform(1000, 3000), rng.uniform(0.01, 0.03)
    for number, hour in enumerate(phase(rng, WEEK)):
        busy = (1 if hour < 5 * HOURS else 0.2) * max(0.0, sin(2 * pi * hour / HOURS))
        yield one(level * (1 + busy * exp(rate * number / HOURS) * rng.uniform(0.8, 1)))


@shape
def leak_until_midnight(rng: random.Random, _: int) -> Iterator[Hour]:
    level, leak = rng.uniform(500, 3000), 0.0
    for hour in phase(rng, HOURS):
        leak = rng.lognormvariate(3, 0.5) if hour == 0 else leak
        yield one(level + leak * hour)


@shape
def calm_and_wild_days(rng: random.Random, _: int) -> Iterator[Hour]:
    level, spread = rng.uniform(2000, 5000), 0.0
    for hour in phase(rng, HOURS):
        spread = level * rng.lognormvariate(-4, 1) if hour == 0 else spread
        yield one(level + noise(rng, spread))


@shape
def more_users_each_week(rng: random.Random, _: int) -> Iterator[Hour]:
    level, users, each = rng.uniform(500, 2000), rng.randrange(1, 6), rng.uniform(100, 400)
    for hour in phase(rng, WEEK):
        users += hour == 0
        yield one(level + each * sum(rng.random() < 0.3 for _ in range(users)))


@shape
def spikes_at_starts_only(rng: random.Random, _: int) -> Iterator[Hour]:
    level, high = rng.uniform(1000, 4000), rng.uniform(1.1, 2)
    for pod in count():
        yield one(level * high * rng.uniform(0.95, 1), f"p{pod}")
        for _ in range(1 + int(rng.expovariate(1 / (15 * HOURS)))):
            yield one(level * rng.uniform(0.95, 1), f"p{pod}")
