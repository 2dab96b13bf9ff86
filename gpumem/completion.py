"""Completion for bash and zsh: verbs, flags, and what a flag takes. Pure.

`kubectl gpumem` is completed by kubectl, which asks a program named kubectl_complete-gpumem on PATH: this one.
"""

import argparse
from collections.abc import Iterator, Sequence

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
    """What may stand for the last of the words, which has been begun, or is empty; then the directive."""
    *before, begun = words or [""]
    yield from (each for each in _all(before, parser) if each.startswith(begun))
    yield _NO_FILES


def _all(before: Sequence[str], parser: argparse.ArgumentParser) -> Iterator[str]:
    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    if not before:
        yield from verbs.choices
        return
    verb = verbs.choices.get(before[0])
    if verb is None:
        return
    flags = {option: action for action in verb._actions for option in action.option_strings}
    last = flags.get(before[-1])
    if last is not None and last.nargs != 0:
        yield from map(str, last.choices or ())
        return
    for action in verb._actions:
        if not action.option_strings:
            yield from map(str, action.choices or ())
    yield from flags
