"""Writes results.md: the mutants, and the tests that find each mutant."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.mutants.judged import EQUIVALENT, NO_PROMISE
from tests.mutants.places import KINDS, Mutant
from tests.mutants.sample import COUNT, PAGE, SEED

LEVELS = ("unit", "simulate")
COMMITS = "commits"  # in the state, maps each level to the commit of its last trials
LOST, UNUSED, ERROR = "not found", "not executed", "error of the trial"
_RULE = (
    "A mutant is a small mistake in `agents/` or `tenancy/`. `places.py` lists all possible mutants, and "
    "`sample.py` draws from the list by a rule. The unit tests that execute a mutant are run with the mutant. Of "
    "100 simulated days (seeds 1 to 100), the days that execute a mutant are simulated with the mutant. A mutant is "
    "found if a test fails, or if a simulated day breaks a promise (`tests/simulation/invariants.py`). An "
    "equivalent mutant gives the same results as the code without the mistake."
)
_UNUSED = (
    "`not executed` means that no test or simulated day reaches the mistake with values that show it. The last column "
    "gives the simulated days on which a mutant was tried, if none of them found the mutant."
)
State = Mapping[str, Mapping[str, str]]


def finds(mutant: Mutant, level: str, state: State) -> bool:
    found = state.get(mutant.id, {}).get(level, LOST)
    return not found.startswith((LOST, UNUSED, ERROR))


def is_open(mutant: Mutant, state: State) -> bool:
    return mutant.id not in EQUIVALENT and not any(finds(mutant, level, state) for level in LEVELS)


def breaks_promise(mutant: Mutant, state: State) -> bool:
    return finds(mutant, "simulate", state) or not (mutant.id in EQUIVALENT or mutant.id in NO_PROMISE)


def write(mutants: Sequence[Mutant], state: State) -> None:
    PAGE.write_text("\n".join(_lines(mutants, state)) + "\n")


def _lines(mutants: Sequence[Mutant], state: State) -> Iterator[str]:
    unit, days = (state.get(COMMITS, {}).get(level, "unknown") for level in LEVELS)
    yield "# Mutants"
    yield ""
    yield f"`make mutants` writes this page. {COUNT} mutants drawn with seed {SEED}."
    yield f"Commit of the unit tests: {unit}. Commit of the simulated days: {days}."
    yield ""
    yield _RULE
    yield ""
    yield from _summary(mutants, state)
    yield from _by_kind(mutants, state)
    yield from _table("Mutants", mutants, state)
    yield from _reasons("Equivalent mutants", [each for each in mutants if each.id in EQUIVALENT], EQUIVALENT)
    quiet = [m for m in mutants if m.id in NO_PROMISE and m.id not in EQUIVALENT and not finds(m, "simulate", state)]
    yield from _reasons("Mutants that break no promise of the simulation", quiet, NO_PROMISE)


def _summary(mutants: Sequence[Mutant], state: State) -> Iterator[str]:
    real = [each for each in mutants if each.id not in EQUIVALENT]
    promising = [each for each in real if breaks_promise(each, state)]
    unit = {each.id for each in real if finds(each, "unit", state)}
    days = {each.id for each in real if finds(each, "simulate", state)}
    yield "| measure | mutants | share |"
    yield "|---|---|---|"
    yield f"| drawn | {len(mutants)} | |"
    yield f"| equivalent | {len(mutants) - len(real)} | |"
    yield _row("found by the unit tests", len(unit), len(real))
    yield _row("found by the simulated days", len(days), len(real))
    yield _row("found by at least one level", len(unit | days), len(real))
    yield f"| found by both levels | {len(unit & days)} | |"
    yield f"| found only by the unit tests | {len(unit - days)} | |"
    yield f"| found only by the simulated days | {len(days - unit)} | |"
    yield f"| found by no level | {len(real) - len(unit | days)} | |"
    yield _row("mutants that break a promise, found by the simulated days", len(days), len(promising))
    partly = [each for each in real if (left := _days(each, state)) and left[0] < left[1]]
    yield f"| not found so far, with simulated days left to try | {len(partly)} | |"
    yield ""


def _days(mutant: Mutant, state: State) -> list[int]:
    found = state.get(mutant.id, {}).get("simulate", "")
    return [*map(int, re.findall(r"\d+", found))] if found.startswith(LOST) else []


def _row(name: str, part: int, whole: int) -> str:
    return f"| {name} | {part} of {whole} | {100 * part / max(whole, 1):.0f} % |"


def _by_kind(mutants: Sequence[Mutant], state: State) -> Iterator[str]:
    drawn = Counter(each.kind for each in mutants)
    unit = Counter(each.kind for each in mutants if finds(each, "unit", state))
    days = Counter(each.kind for each in mutants if finds(each, "simulate", state))
    yield "| kind | mistake | mutants | unit | simulation |"
    yield "|---|---|---|---|---|"
    for kind, text in KINDS.items():
        yield f"| {kind} | {text} | {drawn[kind]} | {unit[kind]} | {days[kind]} |"
    yield ""


def _table(name: str, mutants: Sequence[Mutant], state: State) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    yield _UNUSED
    yield ""
    yield "| id | place | kind | before | after | failed unit test | broken promise | seed | days tried |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for each in mutants:
        found = [state.get(each.id, {}).get(level, "not tried") for level in LEVELS]
        place = f"{each.module}:{each.line} {each.function}"
        cells = (each.id, place, each.kind, _code(each.before), _code(each.after), _test(found[0]), *_day(found[1]))
        yield f"| {' | '.join(cells)} |"
    yield ""


def _test(found: str) -> str:
    return f"`{found.removeprefix('tests/unit/').replace('|', '/')[:110]}`" if "::" in found else found


def _day(found: str) -> tuple[str, str, str]:
    if match := re.fullmatch(rf"{LOST} in (\d+ of \d+) days", found):
        return LOST, "", match[1]
    if match := re.fullmatch(r"(.+) \(seed (\d+)\)", found):
        return f"`{match[1]}`", match[2], ""
    return found, "", ""


def _code(text: str) -> str:
    short = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return f"`{short if len(short) <= 90 else short[:87] + '...'}`"


def _reasons(name: str, mutants: Sequence[Mutant], reasons: Mapping[str, str]) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    for reason in sorted({reasons[each.id] for each in mutants}):
        places = (f"`{each.id} {each.module}:{each.line}`" for each in mutants if reasons[each.id] == reason)
        yield f"- {reason} Mutants: {', '.join(places)}."
    yield ""
