"""Formats reports as JSON and YAML, with the fields that docs/reference/gpumem.md lists."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

VERSION = 2
_INDENT = 2


def data(kind: str, report: Any) -> dict[str, Any]:
    """Returns the document of a report. The document has `kind`, `version`, and all fields of the report."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(report)))
    return {"kind": kind, "version": VERSION, **plain}


def as_json(found: Mapping[str, Any]) -> str:
    return json.dumps(found, indent=_INDENT) + "\n"


def as_yaml(found: Mapping[str, Any]) -> str:
    """Returns the document as YAML. Every string is in quotes, with the escapes of JSON, which YAML accepts too."""
    return "\n".join(_lines(found)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _entry(f"{key}:", each)
    elif isinstance(value, list) and value:
        for each in value:
            inner = [*_lines(each)]
            yield f"- {inner[0]}"
            yield from (f"  {line}" for line in inner[1:])
    else:
        yield _scalar(value)


def _entry(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping | list) and value:
        yield key
        yield from (" " * _INDENT + line for line in _lines(value))
    else:
        yield f"{key} {_scalar(value)}"


def _scalar(value: Any) -> str:
    """Returns a YAML scalar with \\U escapes.

    JSON would use two surrogates for some characters, and YAML does not join surrogates.
    """
    text = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in text)
