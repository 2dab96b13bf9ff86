"""Formats YAML with a comment next to each value. The kubectl plugin has no YAML library, so the module writes YAML
itself.

Labels, names and paths come from the cluster, so tenants can choose some of the text. A string has no quotes only if
every YAML reader reads it unchanged. All other strings have double quotes and the escapes of JSON. A comment has only
printable ASCII characters, so a tenant's text cannot end the comment.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_INDENT = "  "
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*(?::[A-Za-z0-9./_-]+)*")
# YAML 1.1 reads these words as values, and not as strings.
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"})

Scalar = str | int | bool


@dataclass(frozen=True)
class Item:
    """An item of a YAML list, which is a scalar or a map."""

    value: "Scalar | Map"
    comment: str = ""


@dataclass(frozen=True)
class Entry:
    """A key of a YAML map with its value.

    `comment` is printed on the same line after the value. The lines of `above` are printed before the key.
    """

    key: str
    value: "Scalar | Map | tuple[Item, ...]"
    comment: str = ""
    above: tuple[str, ...] = ()


@dataclass(frozen=True)
class Map:
    """A YAML map with its keys in order."""

    entries: tuple[Entry, ...]


def map_of(*entries: Entry | None) -> Map:
    """Returns a map with these entries, without the entries that are None."""
    return Map(tuple(entry for entry in entries if entry is not None))


def rendered(root: Map, head: Sequence[str] = ()) -> str:
    """Returns the document as text. The document begins with the lines of `head`, as comments."""
    return "".join(f"{line}\n" for line in [*map(comment_line, head), *_map(root, "")])


def quoted(text: str) -> str:
    """Returns the string as one YAML scalar."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return "".join(_escaped(each) for each in json.dumps(text, ensure_ascii=False))


def comment_line(text: str) -> str:
    """Returns the text as a comment on one line."""
    shown = "".join(each if each.isascii() and each.isprintable() else f"\\u{ord(each):04x}" for each in text)
    return f"# {shown}" if shown else "#"


def _escaped(each: str) -> str:
    """Returns the character, or its escape \\U.

    JSON would use two surrogates for some characters, and YAML does not join surrogates.
    """
    return each if each.isascii() and each.isprintable() else f"\\U{ord(each):08x}"


def _map(value: Map, indent: str) -> Iterator[str]:
    for entry in value.entries:
        yield from (f"{indent}{comment_line(line)}" if line else "" for line in entry.above)
        yield from _pair(f"{indent}{quoted(entry.key)}:", entry.value, entry.comment, indent + _INDENT)


def _pair(start: str, value: "Scalar | Map | tuple[Item, ...]", comment: str, indent: str) -> Iterator[str]:
    note = f" {comment_line(comment)}" if comment else ""
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
    """Yields the text lines of a list item. The first key of a map in a list is printed after the dash, below the
    comment."""
    if isinstance(item.value, Map) and item.value.entries:
        if item.comment:
            yield indent + comment_line(item.comment)
        for number, line in enumerate(_map(item.value, "")):
            yield f"{indent}{'  ' if number else '- '}{line}"
    else:
        note = f" {comment_line(item.comment)}" if item.comment else ""
        yield f"{indent}- {_scalar(item.value)}{note}"


def _scalar(value: "Scalar | Map | tuple[Item, ...]") -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Map):
        return "{}"
    return quoted(value) if isinstance(value, str) else str(value) if isinstance(value, int) else "[]"
