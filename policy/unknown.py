"""Values that a preview cannot know, made so that no rule can overlook one."""

from collections.abc import Iterator
from typing import Any, NoReturn


class UnprovenError(Exception):
    """A rule looked at a value that is unknown until the update."""


def unknown(key: str) -> str:
    """The message for an unknown value. Most are another resource's output, although the program knows the value."""
    return f"{key} is unknown until the update; write its value in the program, not another resource's output"


class Unknown:
    """An unknown value at `path`. It may be stored and passed on. Every use that needs the value raises UnprovenError:
    a comparison, a truth test, a loop, a lookup, isinstance.
    """

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        object.__setattr__(self, "path", path)

    def _refuse(self, *_: object) -> NoReturn:
        raise UnprovenError(unknown(object.__getattribute__(self, "path")))

    __class__ = property(_refuse)
    __getattr__ = __getitem__ = __contains__ = __iter__ = __len__ = __bool__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refuse
    __str__ = __format__ = __int__ = __float__ = __index__ = _refuse

    def __repr__(self) -> str:
        return f"<unknown {object.__getattribute__(self, 'path')}>"


def is_unknown(value: object) -> bool:
    """The one question that an unknown value answers."""
    return type(value) is Unknown


def unknowns(value: Any) -> Iterator[str]:
    """The paths of all unknown values within plain data."""
    if is_unknown(value):
        yield object.__getattribute__(value, "path")
    elif isinstance(value, dict):
        for item in value.values():
            yield from unknowns(item)
    elif isinstance(value, list):
        for item in value:
            yield from unknowns(item)
