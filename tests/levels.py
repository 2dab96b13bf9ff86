"""Runs levels of tests, and ends with a table of their times: python3 -m tests.levels [level ...]"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

LEVELS = ("lint", "unit", "integration", "e2e")
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
        end = f"failed (exit code {self.code})" if self.code else "passed"
        return f"{self.name:12} {len(self.tests) or '-':>6} {self.seconds:8.0f}  {end}"


def run(name: str, report: Path) -> Level:
    print(f"== {name}", flush=True)
    began = time.monotonic()
    env = {**os.environ, "PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} --junitxml={report}"}
    code = subprocess.run(["make", "--no-print-directory", name], env=env, check=False).returncode
    level = Level(name, code, time.monotonic() - began, tests(report) if report.exists() else {})
    print(f"== {level.row}", flush=True)
    return level


def tests(report: Path) -> dict[str, float]:
    cases = ElementTree.parse(report).iter("testcase")  # noqa: S314 (pytest has written it)
    return {f"{case.get('classname')}::{case.get('name')}": float(case.get("time", 0)) for case in cases}


def table(levels: list[Level]) -> str:
    took = sorted(((seconds, test) for level in levels for test, seconds in level.tests.items()), reverse=True)
    head = f"\n{'level':12} {'tests':>6} {'seconds':>8}"
    slowest = [f"{seconds:7.1f} s  {test}" for seconds, test in took[:SLOWEST]]
    return "\n".join([head, *(level.row for level in levels), *(["\nThe slowest tests:", *slowest] if slowest else [])])


def main(names: list[str]) -> int:
    if unknown := [name for name in names if name not in LEVELS]:
        print(f"there is no level {', '.join(unknown)}; there are {', '.join(LEVELS)}", file=sys.stderr)
        return 2
    levels: list[Level] = []
    with TemporaryDirectory() as folder:
        for name in names or LEVELS:
            levels.append(run(name, Path(folder, f"{name}.xml")))
            if levels[-1].code:
                break
    print(table(levels))
    return levels[-1].code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
