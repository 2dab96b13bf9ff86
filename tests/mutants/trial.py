"""Tries mutants with unit tests or simulated days: `python -m tests.mutants.trial LEVEL FILE`.

Without mutants as arguments, the process records in FILE which tests or days execute each mutant. Each mutant has its
own process (a fork). The process of a mutant ends when a test fails, or when a test takes far too long.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import hook
from tests.mutants.page import ERROR, LOST, UNUSED
from tests.mutants.sample import DAYS, ROOT, sample

TIME_OUT = "time-out"
_SLOW, _AT_LEAST = 10.0, 15.0
_HANG_SECONDS = 300
# These events of a plan suspend all promises with a time limit.
_SUSPEND = {"api", "slow_api", "outage", "clock", "clock_of_the_api", "destroys", "extender_restarts", "leader_changes"}
Try = Callable[[str], str]


def limit(usual: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, max(_SLOW * usual, _AT_LEAST))
    signal.alarm(_HANG_SECONDS)


def in_forks(ids: Sequence[str], attempt: Try) -> None:
    for mutant in ids:
        found, seconds = in_fork(partial(attempt, mutant))
        os.write(_OUTPUT, f"\n{mutant.partition('@')[0]} {seconds:.0f} {found}\n".encode())


def in_fork(work: Callable[[], str]) -> tuple[str, float]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            try:
                pipe.write(work())
            except BaseException as error:  # noqa: BLE001 (the parent reports the error)
                pipe.write(f"{ERROR}: {type(error).__name__}: {error}")
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        found = pipe.read()
    _, status, used = os.wait4(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        found = TIME_OUT if number in (signal.SIGPROF, signal.SIGALRM) else f"{ERROR}: signal {number}"
    return found, used.ru_utime + used.ru_stime


_OUTPUT = os.dup(1)  # pytest captures the standard output


class Units:
    def __init__(self, switch: hook.Switch, ids: Sequence[str], record: dict[str, Any]) -> None:
        self.switch = switch
        self.ids = ids
        self.record = record
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if self.ids:
            in_forks(self.ids, lambda mutant: self._try(mutant, session.items))
            return True
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.switch.context, began = item.nodeid, time.process_time()
        result = yield
        self.switch.context = ""
        self.seconds[item.nodeid] = time.process_time() - began
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def _try(self, mutant: str, items: Sequence[pytest.Item]) -> str:
        self.switch.active = mutant
        items = [*self._chosen(mutant, items)]
        for item, following in zip_longest(items, items[1:]):
            limit(self.record["seconds"].get(item.nodeid, 0.0))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return self.failed[0]
        return LOST if items else UNUSED

    def _chosen(self, mutant: str, items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
        seconds, seen = self.record["seconds"], set(self.record["seen"].get(mutant, ()))
        by_file: dict[str, list[pytest.Item]] = {}
        for item in items:
            if item.nodeid in seen and item.nodeid in seconds:
                by_file.setdefault(item.nodeid.partition("::")[0], []).append(item)
        for found in sorted(by_file.values(), key=lambda found: sum(seconds.get(each.nodeid, 0.0) for each in found)):
            yield from found


def units(file: Path, switch: hook.Switch, ids: Sequence[str]) -> None:
    record: dict[str, Any] = json.loads(file.read_text()) if ids else {}
    plugin = Units(switch, ids, record)
    status = pytest.main(["-q", "-n", "0", str(ROOT / "tests/unit")], [plugin])
    if switch.active and status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        os.write(_OUTPUT, f"{switch.active} 0 the import of the tests\n".encode())
    elif not ids:
        # A test that also fails without the mutant does not find the mutant.
        seconds = {test: seconds for test, seconds in plugin.seconds.items() if test not in plugin.failed}
        file.write_text(json.dumps({"seen": _sorted(switch), "seconds": seconds, "broken": plugin.failed}))


def days(file: Path, switch: hook.Switch, ids: Sequence[str], most: int) -> None:
    run = import_module("tests.simulation.run")
    if ids:
        known = json.loads(file.read_text())
        in_forks(ids, lambda mutant: _try_days(run, switch, mutant, known, most))
        return
    record: dict[str, Any] = {"seen": {}, "seconds": {}, "broken": {}}
    for seed in DAYS:  # Some code caches its results, so each mutant has its own fork.
        _add(record, json.loads(in_fork(partial(_day, run, switch, seed))[0]))
    file.write_text(json.dumps(record))


def _day(run: Any, switch: hook.Switch, seed: int) -> str:
    switch.context, began = str(seed), time.process_time()
    broken = sorted({each.name for each in run.one(seed, run.SPAN).found})
    seconds = time.process_time() - began
    return json.dumps({"seed": str(seed), "broken": broken, "seconds": seconds, "seen": _sorted(switch)})


def _add(record: dict[str, Any], day: dict[str, Any]) -> None:
    record["seconds"][day["seed"]] = day["seconds"]
    record["broken"][day["seed"]] = day["broken"]
    for mutant in day["seen"]:
        record["seen"].setdefault(mutant, []).append(day["seed"])


def _try_days(run: Any, switch: hook.Switch, given: str, record: dict[str, Any], most: int) -> str:
    switch.active, _, first = given.partition("@")
    seen = _in_turn(record["seen"].get(switch.active, []), record, run)
    for seed in seen[int(first or 0) : most]:
        limit(record["seconds"][seed])
        try:
            found = {violation.name for violation in run.one(int(seed), run.SPAN).found}
        except Exception as error:  # noqa: BLE001 (any error is a finding)
            return f"{type(error).__name__} (seed {seed})"
        if new := sorted(found - set(record["broken"][seed])):
            return f"{new[0]} (seed {seed})"
    return f"{LOST} in {min(most, len(seen))} of {len(seen)} days" if seen else UNUSED


def _in_turn(seeds: Sequence[str], record: dict[str, Any], run: Any) -> list[str]:
    busy = Counter(seed for found in record["seen"].values() for seed in found)
    faults = {seed: sum(entry.what in _SUSPEND for entry in run.draw(int(seed)).entries) for seed in seeds}
    calmest = sorted(seeds, key=lambda seed: (faults[seed], -busy[seed], seed))
    busiest = sorted(seeds, key=lambda seed: (-busy[seed], seed))
    return [*dict.fromkeys(seed for pair in zip(calmest, busiest, strict=True) for seed in pair)]


def _sorted(switch: hook.Switch) -> dict[str, list[str]]:
    return {mutant: sorted(found) for mutant, found in switch.seen.items()}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.mutants.trial", description=__doc__)
    parser.add_argument("level", choices=("unit", "simulate"))
    parser.add_argument("file", type=Path)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--early", action="store_true")
    parser.add_argument("--most", type=int, default=len(DAYS), help="days of each mutant")
    given = parser.parse_args(arguments)
    switch = hook.install(sample(), given.ids[0] if given.early else "")
    if given.level == "unit":
        units(given.file, switch, given.ids)
    else:
        days(given.file, switch, given.ids, given.most)


if __name__ == "__main__":
    main(sys.argv[1:])
