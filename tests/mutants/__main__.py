"""Tries mutants with the unit tests and with 100 simulated days: `python -m tests.mutants`.

The results are in build/mutants, so a later call continues an interrupted one. `--write` only writes results.md.
`--open` repeats the mutants that were not found. `--days` limits the number of simulated days.
"""

import argparse
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence

from tests.mutants import page
from tests.mutants.places import Mutant
from tests.mutants.sample import DAYS, ROOT, sample

BUILD = ROOT / "build" / "mutants"
STATE = BUILD / "results.json"
RECORDS = {level: BUILD / f"{level}.json" for level in page.LEVELS}
State = dict[str, dict[str, str]]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.mutants", description=__doc__)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--level", choices=page.LEVELS)
    parser.add_argument("--days", type=int, default=len(DAYS))
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    BUILD.mkdir(parents=True, exist_ok=True)
    if given.fresh:
        for file in (STATE, *RECORDS.values()):
            file.unlink(missing_ok=True)
    mutants, state = sample(), _state()
    if given.open:
        given.ids += [mutant.id for mutant in mutants if page.is_open(mutant, state)]
    for level in () if given.write else [given.level] if given.level else page.LEVELS:
        due = [mutant for mutant in mutants if not given.ids or mutant.id in given.ids]
        if not RECORDS[level].exists():
            [*_lines(level)]
        if level == "unit":
            _try(level, [m for m in due if given.ids or level not in state.get(m.id, {})], state)
        else:
            begun = {mutant.id: 0 if given.ids else _days_tried(mutant, state) for mutant in due}
            left = [mutant for mutant in due if begun[mutant.id] < given.days]
            _try(level, left, state, *(f"{m.id}@{begun[m.id]}" for m in left), f"--most={given.days}")
    page.write(mutants, state)
    return int(any(page.is_open(mutant, state) for mutant in mutants))


def _state() -> State:
    return json.loads(STATE.read_text()) if STATE.exists() else {}


def _days_tried(mutant: Mutant, state: State) -> float:
    found = state.get(mutant.id, {}).get("simulate", f"{page.LOST} in 0 of {len(DAYS)} days")
    if not found.startswith(page.LOST):
        return math.inf
    tried, days = map(int, re.findall(r"\d+", found))
    return tried if tried < days else math.inf


def _try(level: str, mutants: Sequence[Mutant], state: State, *given: str) -> None:
    places, total = {mutant.id: f"{mutant.module}:{mutant.line}" for mutant in mutants}, 0
    if places:
        state.setdefault(page.COMMITS, {})[level] = _commit()
    for line in _lines(level, *(given or places)) if places else ():
        mutant, seconds, found = line.split(" ", 2)
        print(f"{mutant} {places[mutant]} {level}, {seconds} CPU seconds: {found}", flush=True)
        state.setdefault(mutant, {})[level] = found
        STATE.write_text(json.dumps(state, indent=1))
        total += int(seconds)
    print(f"{level}: {total} CPU seconds")


def _lines(level: str, *given: str) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.mutants.trial", level, str(RECORDS[level]), *given]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if re.match(r"[0-9a-f]{8} \d+ ", line):
                yield line.strip()
    if child.returncode:
        raise SystemExit(f"{' '.join(command[1:5])} ended with {child.returncode}")


def _commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
