"""The levels of the tests, one after the other up to the first that fails, and how long each took.

python3 -m tests.levels <make> <target>...
"""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence


def run(levels: Sequence[str], start: Callable[[str], int], seconds: Callable[[], float]) -> tuple[int, list[str]]:
    """The status of the last level that ran, and a line for each level."""
    status, lines, begin = 0, [], seconds()
    for level in levels:
        if status:
            lines.append(f"{level:<12} not run")
            continue
        began = seconds()
        status = start(level)
        lines.append(f"{level:<12} {_minutes(seconds() - began)}{' FAILED' if status else ''}")
    return status, [*lines, f"{'together':<12} {_minutes(seconds() - begin)}"]


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:>3} min {rest:>2} s"


def main(make: str, *levels: str) -> int:
    def start(level: str) -> int:
        print(f"== {level}", flush=True)
        return subprocess.run([make, "--no-print-directory", level], check=False).returncode

    status, lines = run(levels, start, time.monotonic)
    print("", *lines, sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
