"""Compares the timelines of 100 seeds by their hashes: `python -m tests.simulation.run --timelines`.

The hashes change only if the agents act in another way. To find the cause, print a day before and after the change
(`--seed 17 --whole`).
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from tests.simulation.model.timeline import Timeline

SEEDS = range(1, 101)
FILE = Path(__file__).parents[1] / "golden" / "timelines.txt"


def digest(timeline: Timeline) -> str:
    return sha256("\n".join(map(str, timeline.lines)).encode()).hexdigest()[:16]


def recorded() -> Mapping[int, str]:
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return {int(seed): found for seed, found in map(str.split, lines)}


def write(found: Mapping[int, str]) -> None:
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("".join(f"{seed} {each}\n" for seed, each in sorted(found.items())))


def differing(found: Mapping[int, str], seeds: Iterable[int] = SEEDS) -> list[int]:
    known = recorded()
    return [seed for seed in seeds if found.get(seed) != known.get(seed)]
