"""Completes subcommands, flags and their values in a shell.

To complete `kubectl gpumem`, kubectl runs a program with the name kubectl_complete-gpumem on PATH. The plugin is
installed under this name too.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence

PROGRAM = "kubectl_complete-gpumem"
_NO_FILES = ":4"  # The value of ShellCompDirectiveNoFileComp in cobra.


def candidates(words: Sequence[str], parser: argparse.ArgumentParser) -> Iterator[str]:
    """Returns the possible completions of the last word. The last word may be empty. Cobra's directive follows."""
    *before, begun = words or [""]
    yield from (each for each in _all(before, parser) if each.startswith(begun))
    yield _NO_FILES


def _all(before: Sequence[str], parser: argparse.ArgumentParser) -> Iterator[str]:
    (verbs,) = (action.choices for action in _arguments(parser) if isinstance(action.choices, Mapping))
    if not before:
        yield from verbs
        return
    verb = verbs.get(before[0])
    if verb is None:
        return
    flags = {option: action for action in _arguments(verb) for option in action.option_strings}
    last = flags.get(before[-1])
    if last is not None and last.nargs != 0:
        yield from map(str, last.choices or ())
        return
    for action in _arguments(verb):
        if not action.option_strings:
            yield from map(str, action.choices or ())
    yield from flags


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001 (argparse lists them nowhere else)
