"""Finds values in a stack file by their paths."""

from collections.abc import Iterator, Mapping
from typing import Any


def at(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Returns the map at a path such as `queues.flavors`, or an empty map if the path does not exist."""
    value: Any = raw
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def values_at(raw: Mapping[str, Any], pattern: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the path and the value of each match of a pattern such as `residents.*.pool`.

    For the pattern `*@`, the value is the key itself. `[]` stands for the items of a list.
    """
    yield from _walk(raw, pattern.split("."), ())


def _walk(value: Any, pattern: list[str], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not pattern:
        yield path, value
        return
    if pattern[0] == "[]":
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _walk(item, pattern[1:], (*path, str(index)))
        return
    if not isinstance(value, Mapping):
        return
    head, rest = pattern[0], pattern[1:]
    for name in list(value) if head.startswith("*") else [head] if head in value else []:
        yield from _walk(name if head == "*@" else value[name], rest, (*path, name))
