"""`python -m tests.benchmarks.advise`: proposed budgets against held-out weeks, as docs/gpumem.md shows them.

With FILE, a recorded day instead of made-up weeks: pod_gpu_memory_used_bytes_anon.csv of GenTD26
(github.com/alibaba/clusterdata, cluster-trace-v2026-GenAI), the GPU memory of image generators, a sample a minute. An
hour of it stands for a day, and each pod that lasts has a seat.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpumem.advice import DAY_SECONDS, UseSample
from tenancy.units import MIB
from tests.support.weeks import HOURS, KINDS, SEAT, Violations, backtest, held_out

SEEDS = 400
DAYS = (7, 14, 28)
WEEK = 7


def main(arguments: Sequence[str]) -> None:
    pods = recorded(Path(arguments[0])) if arguments else []
    days_seen = [days for days in DAYS if not pods or days + WEEK < HOURS]
    title = f"{len(pods)} recorded pods, hours for days" if pods else f"{SEEDS} seeds"
    print(f"| days above, of 100 ({title}) | {' | '.join(f'{days} days seen' for days in days_seen)} | headroom |")
    print(f"|---|{'---|' * len(days_seen)}---|")
    promised = [100 / (days + 1) for days in days_seen]
    print(f"| promised: at most | {' | '.join(f'{share:.1f}' for share in promised)} | |")
    if pods:
        row("recorded", [on_recorded(pods, days) for days in days_seen])
        return
    for kind in KINDS:
        row(kind, [backtest(kind, seeds=SEEDS, days=days) for days in days_seen])


def row(kind: str, found: Sequence[Violations]) -> None:
    rates = " | ".join(f"{each.rate * 100:.1f}" for each in found)
    print(f"| {kind} | {rates} | {found[-1].headroom:.0%} |")


def recorded(file: Path) -> list[list[UseSample]]:
    """Of each pod that is there all the time, with an hour as a day, from 0 on."""
    by_pod: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with file.open(encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            by_pod[line["container_ip"]].append((float(line["timestamp_anon"]), float(line["value"]) / MIB))
    first = min(at for samples in by_pod.values() for at, _ in samples)
    last = max(at for samples in by_pod.values() for at, _ in samples)
    hour = 3600
    return [
        [UseSample((at - first) * DAY_SECONDS / hour, SEAT, mib, pod) for at, mib in sorted(samples)]
        for pod, samples in by_pod.items()
        if samples and min(samples)[0] < first + hour and max(samples)[0] > last - hour
    ]


def on_recorded(pods: Sequence[Sequence[UseSample]], days: int) -> Violations:
    """Of every week that has so many days before it."""
    found = [held_out(window, days) for pod in pods for window in windows(pod, days)]
    total = sum(each.days for each in found)
    room = sum(each.headroom for each in found) / len(found)
    return Violations(total, sum(each.above for each in found), 1 / (days + 1), room)


def windows(samples: Sequence[UseSample], days: int) -> Iterator[list[UseSample]]:
    for begin in range(0, HOURS - 1 - days - WEEK, WEEK):
        start, end = begin * DAY_SECONDS, (begin + days + WEEK) * DAY_SECONDS
        yield [
            UseSample(each.time - start, each.seat, each.mib, each.pod) for each in samples if start <= each.time < end
        ]


if __name__ == "__main__":
    main(sys.argv[1:])
