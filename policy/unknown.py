"""Values that a preview cannot know. Their type makes sure that no rule overlooks an unknown value."""

from collections.abc import Iterator
from typing import Any, NoReturn


class UnprovenError(Exception):
    """A rule used a value that is unknown until the update."""


def unknown(key: str) -> str:
    """Returns the message for an unknown value. Most unknown values are another resource's output, although the program
    knows the value."""
    return f"{key} is unknown until the update; write its value in the program, not another resource's output"


class Unknown:
    """Stands for the unknown value at `path`. Code may store the object and pass it on. Every use that needs the value
    raises UnprovenError: a comparison, a truth test, a loop, a lookup, isinstance."""

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
    """Returns True if the value is unknown. No other question about an unknown value has an answer."""
    return type(value) is Unknown


def unknowns(value: Any) -> Iterator[str]:
    """Yields the paths of all unknown values within plain data."""
    if is_unknown(value):
        yield object.__getattribute__(value, "path")
    elif isinstance(value, dict):
        for item in value.values():
            yield from unknowns(item)
    elif isinstance(value, list):
        for item in value:
            yield from unknowns(item)
