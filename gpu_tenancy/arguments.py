"""Checks a component's arguments. The caller gives a component's arguments as one mapping or as keywords. The program
gets all problems with the arguments together and without a traceback, before it declares a resource.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pulumi

from stacks.problems import nearest

# The default of a component's parameter `args`. With UNGIVEN as default, `args` can be annotated with the TypedDict
# from which Pulumi reads the component's inputs.
UNGIVEN: Any = None


class ArgumentError(pulumi.RunError):
    """Reports wrong arguments. The message contains the component's type and name, and one line for each problem."""

    def __init__(self, component: str, name: str, problems: Iterable[str]) -> None:
        super().__init__("\n".join([f"{component} {name} is refused:", *(f"  {problem}" for problem in problems)]))


def override_with_keywords(kind: Any, args: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `args` and `keywords` in one mapping. A keyword overrides the argument of the same name.
    An argument with the value None counts as missing. `kind` is the TypedDict of the component's arguments."""
    together = {**(args or {}), **keywords}
    return {name: value for name, value in together.items() if value is not None or name not in kind.__annotations__}


def name_problems(kind: Any, arguments: Mapping[str, Any]) -> list[str]:
    """Returns one line for each missing argument and for each unknown argument."""
    known: Mapping[str, Any] = kind.__annotations__
    unknown = [
        f"{name}: is no argument; {nearest(name, known, 'arguments')}" for name in arguments if name not in known
    ]
    return unknown + [f"{name}: is missing; add it" for name in kind.__required_keys__ if name not in arguments]


def choice_problems(arguments: Mapping[str, Any], first: str, second: str) -> list[str]:
    """Returns one line unless exactly one of the two arguments is given."""
    if first in arguments and second in arguments:
        return [f"{first}, {second}: are both given; remove one"]
    return [] if first in arguments or second in arguments else [f"{first}: is missing; give {first} or {second}"]


def type_problems(arguments: Mapping[str, Any], **kinds: type) -> list[str]:
    """Returns one line for each argument of the wrong type. An Output as argument is refused, because its value is
    known only during an update."""
    return [
        f"{name}: must be a {_WORDS[kind]}, known before the program runs (got {_shown(arguments[name])})"
        for name, kind in kinds.items()
        if name in arguments and not _is(arguments[name], kind)
    ]


def _is(value: object, kind: type) -> bool:
    """Returns True if the value has the type `kind`. A float such as 2.0 counts as a whole number, because other
    languages pass 2 as 2.0."""
    if isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int | float) and value >= 0 and float(value).is_integer()
    return isinstance(value, kind)


_WORDS: Mapping[type, str] = {str: "string", Mapping: "mapping", int: "whole number of 0 or more"}


def _shown(value: object) -> str:
    return "an Output" if isinstance(value, pulumi.Output) else repr(value)[:60]
