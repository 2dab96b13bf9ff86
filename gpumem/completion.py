"""Completes subcommands, flags and their values in a shell.

To complete `kubectl gpumem`, kubectl runs a program with the name kubectl_complete-gpumem on PATH. The installation of
the plugin also creates a program with the name kubectl_complete-gpumem.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

PROGRAM = "kubectl_complete-gpumem"
# The values of ShellCompDirectiveNoFileComp and ShellCompDirectiveNoSpace in cobra.
_NO_FILES, _NO_SPACE = 4, 2

# Returns the names for an argument, from the beginning of its value and from the values of the other arguments. The key
# "" has the values without a flag.
Names = Callable[[str, str, Mapping[str, Sequence[str]]], Iterable[str]]


def candidates(words: Sequence[str], parser: argparse.ArgumentParser, names: Names) -> Iterator[str]:
    """Returns the possible completions of the last word. The last word may be empty. Cobra's directive follows.

    If each completion ends with a slash, the shell adds no space after the completion.
    """
    *before, begun = words or [""]
    found = [each for each in _all(before, begun, parser, names) if each.startswith(begun)]
    yield from found
    yield f":{_NO_FILES + (_NO_SPACE if found and all(each.endswith('/') for each in found) else 0)}"


def _all(before: Sequence[str], begun: str, parser: argparse.ArgumentParser, names: Names) -> Iterator[str]:
    (verbs,) = (action.choices for action in _arguments(parser) if isinstance(action.choices, Mapping))
    if not before:
        yield from verbs
        return
    verb = verbs.get(before[0])
    if verb is None:
        return
    flags = {option: action for action in _arguments(verb) for option in action.option_strings}
    given = _given(before[1:], flags)
    last = flags.get(before[-1])
    if last is not None and last.nargs != 0:
        yield from map(str, last.choices or names(last.dest, begun, given))
        return
    for action in _arguments(verb):
        if not action.option_strings and not given.get("") and not begun.startswith("-"):
            yield from map(str, action.choices or names(action.dest, begun, given))
    yield from flags


def _given(words: Iterable[str], flags: Mapping[str, argparse.Action]) -> dict[str, list[str]]:
    """Returns the values of each flag. The key "" has the values without a flag."""
    found: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        name, has_value, value = word.partition("=")
        flag = flags.get(name)
        if flag is None:
            found.setdefault("", []).append(word)
        elif flag.nargs != 0:
            found.setdefault(flag.dest, []).append(value if has_value else next(rest, ""))
    return found


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001 (argparse lists them nowhere else)
