"""Simulates plans from seeds: `python -m tests.simulation.run`.

`--seeds 200` simulates 200 seeds and prints each violation. `--seed 17` simulates one seed and prints its timeline
around each violation. `--shrink 17 NAME` prints the smallest plan that breaks the promise NAME. `--timelines` compares
the hashes of 100 timelines with tests/golden/timelines.txt. `--timelines write` records the hashes.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from tests.simulation import faults, timelines
from tests.simulation.drawing import SPAN, draw
from tests.simulation.model.timeline import Timeline, clock
from tests.simulation.plan import ACTS, DAY, Entry, Plan
from tests.simulation.system import system
from tests.simulation.violations import Violation

PROGRESS = 100  # the number of simulated seeds between two progress lines


@dataclass(frozen=True)
class Result:
    plan: Plan
    found: tuple[Violation, ...]
    timeline: Timeline


def simulate(plan: Plan) -> Result:
    dice = Random(plan.seed + 1)  # noqa: S311 (a simulation)
    with system(plan.shape, dice) as simulated:
        faults.carry_out(simulated, plan)
        simulated.run(plan.days * DAY)
        return Result(plan, tuple(simulated.violations.found), simulated.world.timeline)


@dataclass(frozen=True)
class Brief:
    seed: int
    found: tuple[Violation, ...]
    seen: Counter[str]
    digest: str


def one(seed: int, days: float) -> Brief:
    result = simulate(draw(seed, days))
    return Brief(seed, result.found, result.timeline.seen, timelines.digest(result.timeline))


def shrunk(plan: Plan, name: str) -> Plan:
    def fails(entries: Sequence[Entry]) -> bool:
        return any(each.name == name for each in simulate(replace(plan, entries=tuple(entries))).found)

    first = next(each for each in simulate(plan).found if each.name == name)
    plan = replace(plan, days=min(plan.days, (first.at + 600) / DAY))
    entries = [entry for entry in plan.entries if entry.at <= first.at]
    size = max(len(entries) // 2, 1)
    while entries:
        for start in range(0, len(entries), size):
            fewer = entries[:start] + entries[start + size :]
            if fails(fewer):
                entries = fewer
                break
        else:
            if size == 1:
                break
            size = max(size // 2, 1)
    return replace(plan, entries=tuple(entries))


def report(result: Result, names: Iterable[str] = ()) -> str:
    lines = [f"seed {result.plan.seed}, {result.plan.shape}, {result.plan.days:g} days"]
    for each in result.found:
        if not names or each.name in names:
            lines += ["", f"== {each.name} at {clock(each.at)}: {each.text}", *result.timeline.around(each.at)]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--days", type=float, default=SPAN)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--shrink", nargs=2)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--timelines", nargs="?", const="compare", choices=("compare", "write"))
    given = parser.parse_args(arguments)
    if given.shrink:
        plan = shrunk(draw(int(given.shrink[0]), given.days), given.shrink[1])
        print(report(simulate(plan), [given.shrink[1]]))
        print(json.dumps([[e.at, e.what, dict(e.given)] for e in plan.entries], indent=1))
        return 0
    if given.seed is not None:
        result = simulate(draw(given.seed, given.days))
        print("\n".join(map(str, result.timeline.lines)) if given.whole else report(result))
        return bool(result.found)
    if given.timelines:
        return check_timelines(given.jobs, write=given.timelines == "write")
    seeds = range(given.first, given.first + given.seeds)
    return _many(seeds, given.days, given.jobs)


def _briefs(seeds: Sequence[int], days: float, jobs: int) -> Iterator[Brief]:
    run = partial(one, days=days)
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds, chunksize=4)


def check_timelines(jobs: int = 1, *, write: bool = False) -> int:
    found = {brief.seed: brief.digest for brief in _briefs(timelines.SEEDS, SPAN, jobs)}
    differing = timelines.differing(found)
    if write:
        timelines.write(found)
    print(f"{len(differing)} of {len(found)} days differ from {timelines.FILE.name}")
    if differing:
        print(f"seeds: {' '.join(map(str, differing))}")
    return int(bool(differing) and not write)


def _many(seeds: Sequence[int], days: float, jobs: int) -> int:
    began, seen, failed = time.perf_counter(), Counter[str](), Counter[str]()
    for done, brief in enumerate(_briefs(seeds, days, jobs), start=1):
        seen.update(brief.seen)
        for each in brief.found:
            print(f"seed {brief.seed}: {each.name} at {clock(each.at)}: {each.text}", flush=True)
        failed.update({each.name for each in brief.found})
        if done % PROGRESS == 0:
            print(f"{done} days in {time.perf_counter() - began:.0f} s, {failed.total()} violations", flush=True)
    for name, count in sorted(({f"plan: {name}": 0 for name in ACTS} | dict(seen)).items()):
        print(f"{count:>9}  {name}")
    for name, count in failed.most_common():
        print(f"VIOLATED in {count} of {len(seeds)} seeds: {name}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
