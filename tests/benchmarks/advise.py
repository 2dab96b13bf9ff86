"""Compares the proposals of advise with the week after the history. Run `python -m tests.benchmarks.advise`."""

import argparse
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from itertools import islice
from statistics import quantiles

from gpumem.proposal import DAY_SECONDS, HORIZON_DAYS, Verdict
from tests.support.shapes import HOURS, SHAPES, hours
from tests.support.weeks import LEAST_STATED, UNLIKELY, Cell, advice, cell

DAYS = (7, 14, 28)
# The shapes that grow until the end of the measurement.
GROWING = ("linear growth", "three percent growth", "growth of a daily cycle", "slow growth in noise")
_FURTHER_DAYS = 200


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.advise", description=__doc__)
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("shapes", nargs="*", default=[*SHAPES])
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    started = time.monotonic()
    with ProcessPoolExecutor() as pool:
        found = {(shape, days): pool.submit(cell, shape, days, seeds) for shape in given.shapes for days in DAYS}
        dates = {
            (shape, days): pool.submit(lateness, shape, days, seeds)
            for shape in GROWING
            if shape in given.shapes
            for days in DAYS
        }
        print(f"| shape | {' | '.join(f'{days} days' for days in DAYS)} |")
        print("|---|---|---|---|")
        for shape in given.shapes:
            print(f"| {shape} | {' | '.join(text(found[shape, days].result()) for days in DAYS)} |", flush=True)
        print(f"\n| date, compared with the real one | {' | '.join(f'{days} days' for days in DAYS)} |")
        print("|---|---|---|---|")
        for shape in GROWING:
            if shape in given.shapes:
                print(f"| {shape} | {' | '.join(spread(dates[shape, days].result()) for days in DAYS)} |", flush=True)
    cells = [each.result() for each in found.values()]
    broken = [f"{each.shape} ({each.days} days)" for each in cells if each.breaks]
    print(f"\n{len(cells)} cells, {sum(each.refuses for each in cells)} refuse: a risk for under {LEAST_STATED:.0%}.")
    print(f"{len(broken)} break the risk (a chance under {UNLIKELY}): {', '.join(broken) or 'none'}.")
    for days in DAYS:
        stating = [each for each in cells if each.days == days and not each.refuses]
        stated = sum(each.stated for each in stating)
        share = stated / max(sum(each.seeds for each in stating), 1)
        above = sum(each.above for each in stating) / max(stated, 1)
        print(
            f"{days} days: {len(stating)} shapes state a risk, for {share:.0%} of the seeds; {above:.1%} exceeded it."
        )
    print(f"{time.monotonic() - started:.0f} s")


def text(found: Cell) -> str:
    if not found.stated:
        return f"refused: {found.refusals.most_common(1)[0][0]}"
    risk, above = found.risks / found.stated, found.above / found.stated
    mark = "BROKEN " if found.breaks else "few: " if found.refuses else ""
    return f"{mark}{above:.0%} of {found.stated}, at most {risk:.0%}"


def lateness(shape: str, days: int, seeds: range) -> list[float]:
    """Returns the error of each date, as a fraction of the real time until the use exceeds the budget. A late date has
    a positive error.
    """
    found = []
    for seed in seeds:
        every = [*islice(hours(shape, seed, days), (days + _FURTHER_DAYS) * HOURS)]
        past, further = every[: days * HOURS], every[days * HOURS :]
        highest = max(mib for _, hour in past for mib in hour.mib)
        declared = int(highest * random.Random(seed).uniform(1, 1.5))  # noqa: S311 (a test)
        given = advice(past, declared)
        limit = given.proposed_mib if given.verdict is Verdict.RAISE else declared
        real = next((at for at, hour in further if max(hour.mib) > (limit or 0)), None)
        if given.reaches and real:
            said = datetime.fromisoformat(f"{given.reaches}T12:00:00+00:00").timestamp()
            left = max(real - further[0][0], HORIZON_DAYS * DAY_SECONDS / 2)
            found.append((said - real) / left)
    return found


def spread(errors: Sequence[float]) -> str:
    if len(errors) < 10:
        return f"{len(errors)} dates"
    tenths = quantiles(errors, n=10)
    return f"{len(errors)} dates: {tenths[4]:+.0%} ({tenths[0]:+.0%} to {tenths[8]:+.0%})"


if __name__ == "__main__":
    main()
