"""What `kubectl gpumem replay` takes of a week: `python -m tests.benchmarks.replay`, which fails where it comes to
anything else than what is known of the week.

Seven days of prod's residents as CSV, with a sample of each pod every 5 s, and the command as it is typed: of a week in
which hours are quiet, and of one in which no minute is. The table goes into docs/benchmarks.md.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support import histories
from tests.support.paths import ROOT

DAYS = 7
WHAT = ("recycled", "let in", "put out", "pending", "refused")


def main() -> int:
    wrong = False
    print("| week | samples | recycled, let in, put out | as known | wall, s | CPU, s |\n|---|---|---|---|---|---|")
    for title, restless in (("quiet hours", False), ("no quiet minute", True)):
        pods, known = histories.days(DAYS, restless=restless)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "use.csv"
            file.write_text("\n".join(histories.lines(pods)))
            before, began = _cpu_seconds(), time.perf_counter()
            command = [sys.executable, "-m", "gpumem", "replay", "--from", str(file), "-o", "json"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            taken = time.perf_counter() - began, _cpu_seconds() - before
        totals = json.loads(done.stdout)["sides"][0]["totals"]
        found = {f"{each['what']} {each['of']}": each["times"] for each in totals if each["what"] in WHAT}
        wrong |= found != known
        counts = ", ".join(str(found.get(key, 0)) for key in known)
        samples = sum(len(pod.samples) for pod in pods)
        as_known = "yes" if found == known else f"no: {found}"
        print(f"| {title} | {samples:,} | {counts} | {as_known} | {taken[0]:.1f} | {taken[1]:.1f} |", flush=True)
    return int(wrong)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
