"""Runs levels of tests, and ends with a table of their times: python3 -m tests.levels [level ...]"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

# The levels of a line run at the same time, because the tests on clusters leave a part of two cores idle.
LEVELS = (
    ("lint",),
    ("unit",),
    ("integration", "e2e"),
)
SLOWEST = 10


@dataclass(frozen=True)
class Level:
    """`tests` maps each test to its seconds, with those of its fixtures. A level without pytest has none."""

    name: str
    code: int
    seconds: float
    tests: dict[str, float] = field(default_factory=dict)

    @property
    def row(self) -> str:
        end = "was ended" if self.code < 0 else f"failed (exit code {self.code})" if self.code else "passed"
        return f"{self.name:12} {len(self.tests) or '-':>6} {self.seconds:8.0f}  {end}"


class Run:
    """A running level. What it prints is shown at once, or else at its end."""

    def __init__(self, name: str, folder: Path, *, is_shown: bool) -> None:
        self._name, self._report, self._began = name, folder / f"{name}.xml", time.monotonic()
        self._output = None if is_shown else folder / f"{name}.log"
        print(f"== {name}", flush=True)
        env = {**os.environ, "PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} --junitxml={self._report}"}
        command = ["make", "--no-print-directory", name]
        if self._output is None:
            self._process = subprocess.Popen(command, env=env)
        else:
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT)

    def wait(self) -> Level:
        code = self._process.wait()
        seconds = time.monotonic() - self._began
        return Level(self._name, code, seconds, tests(self._report) if self._report.exists() else {})

    def show(self) -> None:
        if self._output is not None:
            print(self._output.read_text(errors="replace"), flush=True)

    def end(self) -> None:
        self._process.terminate()


def run(names: list[str], folder: Path) -> Iterator[Level]:
    """Runs the levels at the same time, and shows the last one while it runs. If a level fails, the others end."""
    runs = [Run(name, folder, is_shown=name == names[-1]) for name in names]
    with ThreadPoolExecutor() as pool:
        waiting = {pool.submit(each.wait): each for each in runs}
        for done in as_completed(waiting):
            level = done.result()
            waiting[done].show()
            print(f"== {level.row}", flush=True)
            if level.code:
                for each in runs:
                    each.end()
            yield level


def tests(report: Path) -> dict[str, float]:
    cases = ElementTree.parse(report).iter("testcase")  # noqa: S314 (pytest has written it)
    return {f"{case.get('classname')}::{case.get('name')}": float(case.get("time", 0)) for case in cases}


def table(levels: list[Level]) -> str:
    took = sorted(((seconds, test) for level in levels for test, seconds in level.tests.items()), reverse=True)
    head = f"\n{'level':12} {'tests':>6} {'seconds':>8}"
    slowest = [f"{seconds:7.1f} s  {test}" for seconds, test in took[:SLOWEST]]
    return "\n".join([head, *(level.row for level in levels), *(["\nThe slowest tests:", *slowest] if slowest else [])])


def main(names: list[str]) -> int:
    known = [name for line in LEVELS for name in line]
    if unknown := [name for name in names if name not in known]:
        print(f"there is no level {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    levels: list[Level] = []
    with TemporaryDirectory() as folder:
        for line in LEVELS:
            if chosen := [name for name in line if name in (names or known)]:
                levels.extend(run(chosen, Path(folder)))
            if any(level.code for level in levels):
                break
    print(table(levels))
    return next((level.code for level in levels if level.code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
