"""What a person types after `make`, checked before anything runs.

python3 -m stacks.typed GOAL... -- NAME=VALUE... -- ASSIGNED...

The values as they were typed, and the names of all variables that stand on make's command line. Prints `ok`, or says on
stderr what is wrong. It needs the standard library alone: the project's environment may not be there yet.
"""

import difflib
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

STACK_GOALS = frozenset(
    ("preview", "up", "destroy", "refresh", "recover", "new-stack", "chart", "settings", "stack", "memory-report")
)
TEST_GOALS = frozenset(
    (
        "unit",
        "integration",
        "simulate",
        "e2e",
        "day",
        "migrate",
        "caps",
        "soak",
        "bench",
        "bench-scale",
        "bench-packing",
    )
)
GATED_GOALS = frozenset(("preview", "up"))
PULUMI_GOALS = GATED_GOALS | {"destroy", "refresh"}

_STACK_NAME = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,99}")
_OPTION = "PULUMI_OPTION_"  # and a flag's name: the engine takes every flag from the environment too
# Words, as far as a shell reads nothing else in them: quoted, escaped, and plain.
_PLAIN = re.compile(r"""(?:'[^'\n]*'|"(?:[^"\\$`\n]|\\[^\n])*"|\\[^\n]|[^;&|<>()#$`'"\\\n])*""")

# Flags of pulumi that would have another stack judged or changed than the one that is named.
_OTHER = {
    "--stack": "another stack is STACK=name",
    "--cwd": "the project is this folder",
    "--config": "it rewrites the stack file; write the key there",
    "--config-path": "it rewrites the stack file; write the key there",
    "--config-file": "the stack file is Pulumi.NAME.yaml; another one is STACK=name",
    "--override-env": "the stack file says which environments count",
    "--client": "the program is this folder's",
    "--remote": "the policy pack is here",
}
# And those with which the policy pack does not judge the stack as a whole, or not before it is applied.
_PART = "the policy pack judges a stack as a whole; leave it out"
_UNGATED = {
    "--target": _PART,
    "--target-dependents": _PART,
    "--target-replace": _PART,
    "--exclude": _PART,
    "--exclude-dependents": _PART,
    "--policy-pack-config": "it can switch the policy pack off; leave it out",
    "--skip-preview": "the policy pack judges the preview; leave it out",
    "--plan": "the policy pack judges the preview; leave it out",
    "--": "what follows is no flag; leave it out",
}
_SHORT = {"-s": "--stack", "-C": "--cwd", "-c": "--config", "-t": "--target", "-x": "--exclude", "-f": "--skip-preview"}
_SHORT_WITH_VALUE = "mpv"  # what follows one of these in its word is its value


def stack_name(text: str) -> str:
    """What is wrong with the name of a stack; empty for a right one."""
    if _STACK_NAME.fullmatch(text):
        return ""
    organization, name = text.partition("/")[0], text.rpartition("/")[2]
    if organization != text and _STACK_NAME.fullmatch(organization) and _STACK_NAME.fullmatch(name):
        more = (
            "" if organization == "organization" else f"; PULUMI_DEFAULT_ORGANIZATION={organization} says whose it is"
        )
        return f"write the stack's name alone, {name}{more}"
    return (
        "write the NAME of a Pulumi.NAME.yaml; it has letters, digits, '-', '_' and '.', begins with a letter or a "
        "digit, and has at most 100 characters"
    )


def flags(words: Iterable[str], goal: str) -> Iterator[str]:
    """What is wrong with flags for pulumi, each with what to do instead."""
    refused = _refused(goal)
    for word in words:
        for flag in _named(word):
            if flag in refused:
                yield f"{flag}: {refused[flag]}"


def options(environ: Mapping[str, str], goal: str) -> Iterator[str]:
    """Likewise of the flags that come from the environment."""
    refused = _refused(goal)
    for name in sorted(environ):
        flag = "--" + name.removeprefix(_OPTION).lower().replace("_", "-")
        if name.startswith(_OPTION) and flag in refused and flag != "--stack":  # which is always given
            yield f"{name} in the environment: {refused[flag]}; unset {name}"


def _refused(goal: str) -> Mapping[str, str]:
    return {**_OTHER, **(_UNGATED if goal in GATED_GOALS else {})}


def _named(word: str) -> Iterator[str]:
    """The flags in a word, by their long names where they are known: -dt is two."""
    if word.startswith("--") or not word.startswith("-"):
        yield word.partition("=")[0]
        return
    for letter in word[1:]:
        if letter == "=":
            return
        yield _SHORT.get(f"-{letter}", f"-{letter}")
        if letter in _SHORT_WITH_VALUE:
            return


def _words(text: str) -> str:
    plain = _PLAIN.match(text)
    rest = text[plain.end() :] if plain else text
    return rest and f"from {rest[:20]!r} on the shell reads more than words; put it in single quotes or leave it out"


def _switch(text: str) -> str:
    return "" if text in ("", "1") else "write 1, or leave it out"


def _number(least: int, most: int) -> Callable[[str], str]:
    def check(text: str) -> str:
        right = re.fullmatch(r"\d{1,10}", text, re.ASCII) and least <= int(text) <= most
        return "" if right else f"write a whole number from {least} to {most}"

    return check


def _unless_empty(check: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: text and check(text)


def _path(text: str) -> str:
    return "write it on one line" if "\n" in text else ""


_SEED = 10**9
# Each variable of the Makefile that a person gives, the goals that read it, and what is wrong with a value.
TYPED: Mapping[str, tuple[Collection[str], Callable[[str], str]]] = {
    "STACK": (STACK_GOALS, stack_name),
    "ARGS": (PULUMI_GOALS | TEST_GOALS | {"gpumem"}, _words),
    "FULL": (GATED_GOALS, _switch),
    "COVER": (("unit",), _switch),
    "YES": (PULUMI_GOALS - {"preview"}, _switch),
    "SEEDS": (("simulate",), _number(1, _SEED)),
    "FIRST": (("simulate",), _number(0, _SEED)),
    "JOBS": (("simulate",), _number(1, 1024)),
    "SEED": (("simulate",), _unless_empty(_number(0, _SEED))),
    "TRACE": (("bench-packing",), _path),
    "FROM": (("memory-report",), _path),
    "DAYS": (("memory-report",), _unless_empty(_number(1, 9999))),
}


def refusals(
    goals: Collection[str], given: Mapping[str, str], assigned: Iterable[str], environ: Mapping[str, str]
) -> Iterator[str]:
    """Everything that is wrong, each in a sentence that says what to write."""
    for name in assigned:
        meant = "" if name in TYPED else next(iter(difflib.get_close_matches(name.upper(), TYPED, cutoff=0.75)), "")
        if meant:
            yield f"{name}: there is no such variable; write {meant}="
    for name, (readers, check) in TYPED.items():
        value = given.get(name, "")
        if set(readers) & set(goals) and (wrong := check(value)):
            yield f"{name}={value!r}: {wrong}"
    for goal in goals:
        if goal in PULUMI_GOALS:
            args = given.get("ARGS", "")
            for wrong in () if _words(args) else flags(shlex.split(args), goal):
                yield f"ARGS={args!r}: {wrong}"
            yield from options(environ, goal)


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    given = arguments.index("--") + 1
    assigned = arguments.index("--", given) + 1
    values = dict(pair.split("=", 1) for pair in arguments[given : assigned - 1])
    wrong = dict.fromkeys(refusals(arguments[: given - 1], values, arguments[assigned:], environ))
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)
        return 1
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
