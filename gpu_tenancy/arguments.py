"""Checks a component's arguments, which come as one mapping or by keyword. All problems are reported at once, without a
traceback, before anything is declared."""

from collections.abc import Iterable, Mapping
from typing import Any

import pulumi

from stacks.problems import nearest

# The default of `args`. The annotation stays the TypedDict, from which Pulumi reads a component's inputs.
UNGIVEN: Any = None


class ArgumentError(pulumi.RunError):
    """The arguments are refused. The message has the component's type and name, and a line for each problem."""

    def __init__(self, component: str, name: str, problems: Iterable[str]) -> None:
        super().__init__("\n".join([f"{component} {name} is refused:", *(f"  {problem}" for problem in problems)]))


def override_with_keywords(kind: Any, args: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments; keywords win. A None counts as left out. `kind` is the TypedDict of the arguments."""
    together = {**(args or {}), **keywords}
    return {name: value for name, value in together.items() if value is not None or name not in kind.__annotations__}


def name_problems(kind: Any, arguments: Mapping[str, Any]) -> list[str]:
    """A line for each missing and each unknown argument."""
    known: Mapping[str, Any] = kind.__annotations__
    unknown = [
        f"{name}: is no argument; {nearest(name, known, 'arguments')}" for name in arguments if name not in known
    ]
    return unknown + [f"{name}: is missing; add it" for name in kind.__required_keys__ if name not in arguments]


def choice_problems(arguments: Mapping[str, Any], first: str, second: str) -> list[str]:
    """A line unless exactly one of the two arguments is given."""
    if first in arguments and second in arguments:
        return [f"{first}, {second}: are both given; remove one"]
    return [] if first in arguments or second in arguments else [f"{first}: is missing; give {first} or {second}"]


def type_problems(arguments: Mapping[str, Any], **kinds: type) -> list[str]:
    """A line for each argument of another kind. An Output is refused: it is known only during an update."""
    return [
        f"{name}: must be a {_WORDS[kind]}, known before the program runs (got {_shown(arguments[name])})"
        for name, kind in kinds.items()
        if name in arguments and not _is(arguments[name], kind)
    ]


def _is(value: object, kind: type) -> bool:
    """True for a value of the kind. Other languages pass the whole number 2 as 2.0."""
    if isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int | float) and value >= 0 and float(value).is_integer()
    return isinstance(value, kind)


_WORDS: Mapping[type, str] = {str: "string", Mapping: "mapping", int: "whole number of 0 or more"}


def _shown(value: object) -> str:
    return "an Output" if isinstance(value, pulumi.Output) else repr(value)[:60]
