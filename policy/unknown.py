"""Values that a preview cannot know. Unknown values have their own type, so that no rule overlooks an unknown value."""

from collections.abc import Iterator
from typing import Any, NoReturn


class UnprovenError(Exception):
    """A rule used a value that is unknown until the update."""


def unknown(key: str) -> str:
    """Returns the message for an unknown value. The usual cause is that the program uses another resource's output
    where it could write the value itself."""
    return f"{key} is unknown until the update; write its value in the program, not another resource's output"


class Unknown:
    """An unknown value at `path`. Code may store an unknown value and pass it on. Every use that needs the value raises
    UnprovenError: a comparison, a truth test, a loop, a lookup or isinstance."""

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
    """Returns True if the value is unknown. Only this function may test a value that is possibly unknown."""
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
