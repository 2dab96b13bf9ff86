"""Writes YAML with a comment next to each value. The plugin has no YAML library.

Labels, names and paths come from the cluster, so tenants choose some of this text. A string is plain only if every
reader of YAML takes it for that string; any other is in double quotes, with JSON's escapes. A comment has printable
ASCII alone, so a tenant's text cannot end the line.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_INDENT = "  "
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*(?::[A-Za-z0-9./_-]+)*")
# Readers of YAML 1.1 take these for other values.
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"})

Scalar = str | int | bool


@dataclass(frozen=True)
class Item:
    """An item of a list: a scalar or a map."""

    value: "Scalar | Map"
    comment: str = ""


@dataclass(frozen=True)
class Entry:
    """A key with its value. `comment` follows it on its line, and the lines `above` come before it."""

    key: str
    value: "Scalar | Map | tuple[Item, ...]"
    comment: str = ""
    above: tuple[str, ...] = ()


@dataclass(frozen=True)
class Map:
    """A map, in this order."""

    entries: tuple[Entry, ...]


def mapped(*entries: Entry | None) -> Map:
    """The map of the entries, without those that are None."""
    return Map(tuple(entry for entry in entries if entry is not None))


def rendered(root: Map, head: Sequence[str] = ()) -> str:
    """The document, with the lines of `head` as comments before it."""
    return "".join(f"{line}\n" for line in [*map(commented, head), *_map(root, "")])


def quoted(text: str) -> str:
    """The string as one YAML scalar."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return "".join(_escaped(each) for each in json.dumps(text, ensure_ascii=False))


def commented(text: str) -> str:
    """The text as a comment on one line."""
    shown = "".join(each if each.isascii() and each.isprintable() else f"\\u{ord(each):04x}" for each in text)
    return f"# {shown}" if shown else "#"


def _escaped(each: str) -> str:
    """JSON writes some characters as two surrogates, which YAML does not join, so they are written as \\U."""
    return each if each.isascii() and each.isprintable() else f"\\U{ord(each):08x}"


def _map(value: Map, indent: str) -> Iterator[str]:
    for entry in value.entries:
        yield from (f"{indent}{commented(line)}" if line else "" for line in entry.above)
        yield from _pair(f"{indent}{quoted(entry.key)}:", entry.value, entry.comment, indent + _INDENT)


def _pair(start: str, value: "Scalar | Map | tuple[Item, ...]", comment: str, indent: str) -> Iterator[str]:
    note = f" {commented(comment)}" if comment else ""
    if isinstance(value, Map) and value.entries:
        yield start + note
        yield from _map(value, indent)
    elif isinstance(value, tuple) and value:
        yield start + note
        for item in value:
            yield from _item(item, indent)
    else:
        yield f"{start} {_scalar(value)}{note}"


def _item(item: Item, indent: str) -> Iterator[str]:
    """A map's first key is on the line of the dash, below the comment."""
    if isinstance(item.value, Map) and item.value.entries:
        if item.comment:
            yield indent + commented(item.comment)
        for number, line in enumerate(_map(item.value, "")):
            yield f"{indent}{'  ' if number else '- '}{line}"
    else:
        note = f" {commented(item.comment)}" if item.comment else ""
        yield f"{indent}- {_scalar(item.value)}{note}"


def _scalar(value: "Scalar | Map | tuple[Item, ...]") -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Map):
        return "{}"
    return quoted(value) if isinstance(value, str) else str(value) if isinstance(value, int) else "[]"
