"""Draws mutants from all mutants of agents/ and tenancy/, by a rule and a seed.

The number of mutants of a folder depends on its number of lines. A mutant of the last page stays in the sample while
its code exists.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from tests.mutants.places import KINDS, Mutant, mutants

ROOT = Path(__file__).parents[2]
FOLDERS = ("agents", "tenancy")
SEED = 31
COUNT = 100
PAGE = Path(__file__).with_name("results.md")
DAYS = range(1, 101)  # the seeds of the simulated days in which mutants are tried


@cache
def sources() -> Mapping[str, str]:
    files = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text() for file in files}


def last_ids() -> frozenset[str]:
    return frozenset(re.findall(r"^\| ([0-9a-f]{8}) \|", PAGE.read_text() if PAGE.exists() else "", re.MULTILINE))


def sample(seed: int = SEED, count: int = COUNT) -> list[Mutant]:
    lines, found, kept = defaultdict[str, int](int), defaultdict[str, list[Mutant]](list), last_ids()
    for module, text in sources().items():
        folder = module.rpartition(".")[0]
        lines[folder] += len(text.splitlines())
        found[folder] += mutants(module, text)
    chosen = [
        mutant for folder, share in shares(lines, count).items() for mutant in _drawn(found[folder], share, seed, kept)
    ]
    return sorted(chosen, key=lambda mutant: (mutant.module, mutant.place, mutant.choice))


def shares(sizes: Mapping[str, int], count: int) -> Mapping[str, int]:
    total = sum(sizes.values())
    exact = {name: count * size / total for name, size in sizes.items()}
    found = {name: int(each) for name, each in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (found[name] - exact[name], name))
    for name in by_remainder[: count - sum(found.values())]:
        found[name] += 1
    return found


def _drawn(given: Iterable[Mutant], count: int, seed: int, kept: Collection[str]) -> Iterator[Mutant]:
    by_kind, used = defaultdict[str, list[Mutant]](list), set[tuple[str, str]]()
    for mutant in sorted(given, key=lambda mutant: _rank(seed, mutant.id)):
        if mutant.id in kept and count:
            used.add((mutant.module, mutant.function))
            count -= 1
            yield mutant
        else:
            by_kind[mutant.kind].append(mutant)
    kinds = sorted(KINDS, key=lambda kind: _rank(seed, f"{kind} {min((m.id for m in by_kind[kind]), default='')}"))
    while count and any(by_kind.values()):
        for kind in kinds:
            free = [each for each in by_kind[kind] if (each.module, each.function) not in used]
            by_kind[kind] = free[1:]
            if free and count:
                used.add((free[0].module, free[0].function))
                count -= 1
                yield free[0]


def _rank(seed: int, name: str) -> str:
    return sha256(f"{seed} {name}".encode()).hexdigest()
