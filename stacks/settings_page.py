"""Makes docs/reference/settings.md from the schema of the settings."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stacks.settings import StackSettings

_HEAD = """# Settings

This page lists every key of a stack file, by part. `make schema` writes the page from the code. NAME stands for a name
that you choose, and `[]` stands for an item of a list. 1 MiB is 2^20 bytes. A part that is left out is not declared. A
part that is written as `{}` is declared with all its defaults, so `watchdog: {}` is a watchdog.

`*` stands for the fields that the stack passes through to Kueue. They have the names of Kueue's API in snake case, such
as `stop_policy` for `stopPolicy`, and Kueue's documentation describes them. A preview refuses unknown fields and wrong
values by the schemas of the Kueue chart that comes with this release. Rules between two fields are Kueue's own: the API
server judges them when it gets the object, so `up` can still be refused.
"""
_UNITS = (("_mib_per_second", "MiB/s"), ("_per_gib_hour", "per GiB and hour"), ("_mib", "MiB"), ("_seconds", "s"))
_WORDS = {"integer": "whole number", "boolean": "true or false", "array": "list", "object": "map"}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A key of the settings that takes a value.

    `default` and `example` are YAML in one line. If the key has no default, `default` is None.
    """

    path: str
    kind: str
    unit: str
    default: str | None
    example: str
    description: str


def settings(part: str, schema: Mapping[str, Any]) -> Iterator[Setting]:
    """Yields the settings of a part, in the order of its Spec. `schema` is the JSON schema of all settings."""
    yield from _settings(schema["properties"][part], schema["$defs"], part, required=part in schema["required"])


def _settings(
    node: Mapping[str, Any], definitions: Mapping[str, Any], path: str, *, required: bool
) -> Iterator[Setting]:
    found = _resolved(node, definitions)
    inside = found.get("additionalProperties") if found.get("type") == "object" else found.get("items", {})
    inside = inside if isinstance(inside, dict) else {}
    if "properties" in found:
        for name, each in found["properties"].items():
            yield from _settings(each, definitions, f"{path}.{name}", required=name in found.get("required", ()))
        if passed := found.get("propertyNames"):
            text = passed["description"]
            yield Setting(path=f"{path}.*", kind="Kueue's", unit="", default="", example="", description=text)
    elif _has_keys(inside, definitions):
        step = "[]" if found["type"] == "array" else ".NAME"
        yield from _settings(inside, definitions, f"{path}{step}", required=True)
    else:
        yield Setting(
            path=path,
            kind=_kind(found),
            unit=next((unit for suffix, unit in _UNITS if path.endswith(suffix)), ""),
            default=None if required else _line(found["default"]) if "default" in found else "",
            example=_example(found),
            description=found.get("description", ""),
        )


def _resolved(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a schema node, merged with the definition to which the node refers.

    A key of the node overrides the same key of the definition.
    """
    name = node.get("$ref", "").rpartition("/")[2]
    return {**definitions[name], **node} if name else dict(node)


def _has_keys(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    found = _resolved(node, definitions)
    return "properties" in found or isinstance(found.get("additionalProperties"), dict)


def _kind(found: Mapping[str, Any]) -> str:
    if "enum" in found:
        return " or ".join(f"`{each}`" for each in found["enum"])
    kinds = [found["type"]] if isinstance(found["type"], str) else found["type"]
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds)


def _example(found: Mapping[str, Any]) -> str:
    """Returns the example of a field of the settings.

    For a choice without an example, returns the first value that is not the default.
    """
    given = found.get("examples") or [
        each
        for each in found.get("enum", (True, False) if found["type"] == "boolean" else ())
        if each != found.get("default")
    ]
    return _line(given[0]) if given else ""


def _line(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def render(schema: Mapping[str, Any]) -> str:
    """docs/reference/settings.md."""
    lines = [_HEAD]
    for part, field in StackSettings.model_fields.items():
        lines += [f"## {part}", "", f"{field.description}", ""]
        rows = [_row(each) for each in settings(part, schema)]
        head = ["| key | type | unit | default | example | meaning |", "|---|---|---|---|---|---|"]
        lines += [*head, *rows, ""] if rows else [f"It has no settings of its own: write `{part}: {{}}`.", ""]
    return "\n".join(lines)


def _row(found: Setting) -> str:
    default = "required" if found.default is None else f"`{found.default}`" if found.default else ""
    cells = (
        f"`{found.path}`",
        found.kind,
        found.unit,
        default,
        f"`{found.example}`" if found.example else "",
        found.description.replace("<", "&lt;"),
    )
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
