"""Completes verbs, flags and their values in bash and zsh.

kubectl completes `kubectl gpumem` by a program on PATH that is named kubectl_complete-gpumem. That program is this one.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence

PROGRAM = "kubectl_complete-gpumem"
HELP = (
    "Completes the command kubectl-gpumem itself: source what this prints. For `kubectl gpumem`, kubectl's own "
    f"completion asks {PROGRAM} on PATH, which make plugin puts beside it."
)
_NO_FILES = ":4"  # cobra's ShellCompDirectiveNoFileComp

SCRIPTS = {
    "bash": """_kubectl_gpumem() {
  local IFS=$'\\n'
  COMPREPLY=($(kubectl-gpumem __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | grep -v '^:'))
}
complete -F _kubectl_gpumem kubectl-gpumem""",
    "zsh": """#compdef kubectl-gpumem
_kubectl_gpumem() {
  compadd -- ${(f)"$(kubectl-gpumem __complete "${(@)words[2,CURRENT]}" 2>/dev/null | grep -v '^:')"}
}
compdef _kubectl_gpumem kubectl-gpumem""",
}


def candidates(words: Sequence[str], parser: argparse.ArgumentParser) -> Iterator[str]:
    """The possible endings of the last word, which may be empty; then cobra's directive."""
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
