"""Compares the hashes of the timelines of 300 days. A commit that does not change the agents' behaviour keeps all
hashes.

`python -m tests.simulation.run --timelines` compares the hashes with tests/golden/timelines.txt, and prints the seeds
that differ. `--timelines write` rewrites the file. 300 days take six minutes of CPU time. To find the cause of a
difference, print the day with `--seed 17 --whole` before and after the change.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from simulation.timeline import Timeline

SEEDS = range(1, 301)
FILE = Path(__file__).parents[1] / "golden" / "timelines.txt"


def digest(timeline: Timeline) -> str:
    """Returns the hash of the timeline's text, where times are in whole seconds."""
    return sha256("\n".join(map(str, timeline.lines)).encode()).hexdigest()[:16]


def recorded() -> Mapping[int, str]:
    """Returns the recorded hashes by seed."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return {int(seed): found for seed, found in map(str.split, lines)}


def write(found: Mapping[int, str]) -> None:
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("".join(f"{seed} {each}\n" for seed, each in sorted(found.items())))


def differing(found: Mapping[int, str], seeds: Iterable[int] = SEEDS) -> list[int]:
    """Returns the seeds with a hash that differs from the recorded one."""
    known = recorded()
    return [seed for seed in seeds if found.get(seed) != known.get(seed)]
