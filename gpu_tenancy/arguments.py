"""A component's arguments, as one mapping or by keyword. What is wrong with them is said all at once, without a
traceback, before anything is declared."""

from collections.abc import Iterable, Mapping
from typing import Any

import pulumi

from stacks.problems import nearest

# The default of `args`. Its annotation is the TypedDict alone: Pulumi reads a component's inputs off it.
UNGIVEN: Any = None


class ArgumentError(pulumi.RunError):
    """The arguments were refused: a line for each problem, below the component's type and name."""

    def __init__(self, component: str, name: str, problems: Iterable[str]) -> None:
        super().__init__("\n".join([f"{component} {name} is refused:", *(f"  {problem}" for problem in problems)]))


def given(kind: Any, args: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments; one that is None counts as left out. Keywords win. `kind` is the TypedDict that says which ones
    there are."""
    together = {**(args or {}), **keywords}
    return {name: value for name, value in together.items() if value is not None or name not in kind.__annotations__}


def misnamed(kind: Any, arguments: Mapping[str, Any]) -> list[str]:
    """What is missing, and what is no argument."""
    known: Mapping[str, Any] = kind.__annotations__
    unknown = [
        f"{name}: is no argument; {nearest(name, known, 'arguments')}" for name in arguments if name not in known
    ]
    return unknown + [f"{name}: is missing; add it" for name in kind.__required_keys__ if name not in arguments]


def one_of(arguments: Mapping[str, Any], first: str, second: str) -> list[str]:
    """Exactly one of two arguments."""
    if first in arguments and second in arguments:
        return [f"{first}, {second}: are both given; remove one"]
    return [] if first in arguments or second in arguments else [f"{first}: is missing; give {first} or {second}"]


def mistyped(arguments: Mapping[str, Any], **kinds: type) -> list[str]:
    """Those that must be plain, and of another kind: what only an update knows is an Output."""
    return [
        f"{name}: must be a {_WORDS[kind]}, known before the program runs (got {_shown(arguments[name])})"
        for name, kind in kinds.items()
        if name in arguments and not _is(arguments[name], kind)
    ]


def _is(value: object, kind: type) -> bool:
    """A number counts pods; from another language it comes as 2.0."""
    if isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int | float) and value >= 0 and float(value).is_integer()
    return isinstance(value, kind)


_WORDS: Mapping[type, str] = {str: "string", Mapping: "mapping", int: "whole number of 0 or more"}


def _shown(value: object) -> str:
    return "an Output" if isinstance(value, pulumi.Output) else repr(value)[:60]
