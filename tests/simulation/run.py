"""python3 -m tests.simulation.run: simulates days, by seeds, and tells what a failing one did.

--seeds 200         as many seeds, a day each, from --first on; on --jobs processes; what fails is printed at once
--minutes 60        no seed is begun after so long: what was done until then is reported
--seed 17           one of them, with the timeline around each violation
--shrink 17 NAME    the entries of its plan without which NAME does not come about
--undone 100        for each fix that undone.py takes out: the first of so many seeds that finds it, and what broke
"""

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from simulation.timeline import Timeline, clock
from tests.simulation import faults
from tests.simulation.faults import DAY, Plan
from tests.simulation.invariants import Violation
from tests.simulation.system import system
from tests.simulation.undone import UNDONE, undone

PROGRESS = 100  # seeds from one line on how far it is to the next


@dataclass(frozen=True)
class Result:
    """A plan, and what came of it; `seconds` of a core it took, `jumped` of its virtual time were left out."""

    plan: Plan
    found: tuple[Violation, ...]
    timeline: Timeline
    seconds: float
    jumped: float
    passes: int
    requests: int


def simulate(plan: Plan, *, jumping: bool = True, remembering: bool = True) -> Result:
    """All of it. The agents' dice are the plan's seed's as well."""
    began = time.process_time()
    dice = Random(plan.seed + 1)  # noqa: S311 (a simulation)
    with system(plan.shape, dice, jumping=jumping, remembering=remembering) as simulated:
        faults.carry_out(simulated, plan)
        simulated.run(plan.days * DAY)
        world = simulated.world
        return Result(
            plan=plan,
            found=tuple(simulated.invariants.found),
            timeline=world.timeline,
            seconds=time.process_time() - began,
            jumped=world.jumped,
            passes=world.passes,
            requests=simulated.server.requests,
        )


@dataclass(frozen=True)
class Brief:
    """A result without its timeline: what comes back from a process."""

    seed: int
    days: float
    found: tuple[Violation, ...]
    seen: Counter[str]
    seconds: float
    jumped: float
    passes: int


def one(seed: int, days: float) -> Brief:
    result = simulate(faults.draw(seed, days))
    return Brief(seed, days, result.found, result.timeline.seen, result.seconds, result.jumped, result.passes)


def shrunk(plan: Plan, name: str) -> Plan:
    """A smaller plan that still violates `name`: entries are left out, first by halves, then one by one."""

    def fails(entries: Sequence[faults.Entry]) -> bool:
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
    """The timeline around each violation."""
    lines = [f"seed {result.plan.seed}, {result.plan.shape}, {result.plan.days:g} days"]
    for each in result.found:
        if not names or each.name in names:
            lines += ["", f"== {each.name} at {clock(each.at)}: {each.text}", *result.timeline.around(each.at)]
    return "\n".join(lines)


def coverage(seen: Counter[str]) -> str:
    """What occurred, and how often; what never did shows as 0."""
    known = {f"plan: {name}": 0 for name in faults.ACTS} | dict(seen)
    return "\n".join(f"{count:>9}  {name}" for name, count in sorted(known.items()))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--shrink", nargs=2)
    parser.add_argument("--undone", type=int)
    parser.add_argument("--only", action="append", default=[])
    given = parser.parse_args(arguments)
    if given.shrink:
        plan = shrunk(faults.draw(int(given.shrink[0]), given.days), given.shrink[1])
        print(report(simulate(plan), [given.shrink[1]]))
        print(json.dumps([[e.at, e.what, dict(e.given)] for e in plan.entries], indent=1))
        return 0
    if given.seed is not None:
        result = simulate(faults.draw(given.seed, given.days))
        print(report(result, given.only))
        print(f"{result.seconds:.2f} s, {result.passes} passes, {result.requests} requests")
        return bool(result.found)
    if given.undone is not None:
        return _found(range(given.first, given.first + given.undone), given.days)
    return _many(range(given.first, given.first + given.seeds), given.days, given.jobs, given.minutes)


def _found(seeds: Sequence[int], days: float) -> int:
    """Whether days that nobody wrote find each defect that once was; 1 where one is not found."""
    missed = 0
    for name in UNDONE:
        with undone(name):
            found = next((brief for seed in seeds if (brief := one(seed, days)).found), None)
        broken = ", ".join(sorted({each.name for each in found.found})) if found else "nothing"
        print(f"{'never' if found is None else f'seed {found.seed}':>9}  {name}: {broken}", flush=True)
        missed += found is None
    return int(missed > 0)


def _briefs(seeds: Sequence[int], days: float, jobs: int) -> Iterator[Brief]:
    run = partial(one, days=days)
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for start in range(0, len(seeds), 50 * jobs):  # so that who stops asking need not wait for all
            yield from pool.map(run, seeds[start : start + 50 * jobs], chunksize=4)


def _many(seeds: Sequence[int], days: float, jobs: int, minutes: float) -> int:
    began, seen, failed = time.perf_counter(), Counter[str](), Counter[str]()
    examples: dict[str, list[int]] = {}
    passes, jumped, done, cpu = 0, 0.0, 0, 0.0
    for brief in _briefs(seeds, days, jobs):
        done, cpu = done + 1, cpu + brief.seconds
        seen.update(brief.seen)
        passes, jumped = passes + brief.passes, jumped + brief.jumped
        for each in brief.found:
            print(f"seed {brief.seed}: {each.name} at {clock(each.at)}: {each.text}", flush=True)
        for name in {each.name for each in brief.found}:
            failed[name] += 1
            examples.setdefault(name, []).append(brief.seed)
        if done % PROGRESS == 0:
            print(
                f"{done} days, {failed.total()} violations, {done * days / cpu:.1f} days a second of a core", flush=True
            )
        if time.perf_counter() - began > minutes * 60:
            break
    took = time.perf_counter() - began
    total = done * days
    print(coverage(seen))
    print(
        f"\n{total:g} days in {took:.1f} s: {total / took:.1f} days a second, {total / cpu:.1f} of a core's; "
        f"{passes / total:.0f} passes of agents a day, {100 * jumped / total / DAY:.0f} % of the time was quiet and "
        "left out"
    )
    for name, count in failed.most_common():
        print(f"VIOLATED in {count} of {done} seeds: {name} (such as {examples[name][:5]})")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
