"""Makes Pulumi's types of the settings from the JSON schema of the settings.

With the types, an editor completes the settings in TypeScript and Go, and the compiler refuses a misspelled key or
choice. The types do not contain defaults, ranges and patterns, because the component Platform checks the values.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_ROOT = "Settings"
_ANY = "pulumi.json#/Any"


class UntranslatableError(Exception):
    """Raised for a part of a JSON schema that has no type of Pulumi here."""


def with_settings(package: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a package's schema in which the component Platform has typed settings.

    `package` is Pulumi's schema of the components, and `settings` is the JSON schema of all settings.
    """
    name = package["name"]
    component = f"{name}:index:Platform"
    platform = package["resources"][component]
    inputs = platform["inputProperties"]
    typed = {"$ref": _token(name, _ROOT), "plain": True, "description": inputs["settings"]["description"]}
    return {
        **package,
        "resources": {
            **package["resources"],
            component: {**platform, "inputProperties": {**inputs, "settings": typed}},
        },
        "types": {f"{name}:index:{each}": kind for each, kind in _types(name, settings)},
    }


def _types(package: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for owner, node in {_ROOT: settings, **settings["$defs"]}.items():
        if "enum" in node:
            yield owner, _enum(node)
            continue
        properties = {}
        for key, value in node["properties"].items():
            choices = _choices(value)
            alias = owner.removesuffix("Spec") + _words(key)
            if choices:
                yield alias, _enum(choices)
            kind = _type(package, value, alias)
            properties[key] = {**kind, "description": _described(value)}
        for key in node.get("propertyNames", {}).get("enum", ()):  # a field that the stack passes through
            properties.setdefault(key, {"$ref": _ANY, "plain": True, "description": "A field of Kueue."})
        yield (
            owner,
            {
                "type": "object",
                "description": _described(node),
                "properties": properties,
                "required": list(node.get("required", ())),
            },
        )


def _choices(node: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the node's own choices, or the choices of its items or values."""
    if "enum" in node:
        return node
    inside = node.get("items", node.get("additionalProperties"))
    return _choices(inside) if isinstance(inside, Mapping) else None


def _type(package: str, node: Mapping[str, Any], alias: str) -> dict[str, Any]:
    """Returns the type of a value that is known before the program runs. `alias` is the name of the type with the
    value's own choices."""
    kind = node.get("type")
    found: dict[str, Any]
    if "$ref" in node:
        found = {"$ref": _token(package, node["$ref"].rpartition("/")[2])}
    elif "enum" in node:
        found = {"$ref": _token(package, alias)}
    elif isinstance(kind, list):
        found = {"oneOf": [{"type": each, "plain": True} for each in kind]}
    elif kind == "array":
        found = {"type": kind, "items": _type(package, node["items"], alias)}
    elif kind == "object" and isinstance(node.get("additionalProperties"), Mapping):
        found = {"type": kind, "additionalProperties": _type(package, node["additionalProperties"], alias)}
    elif kind in ("string", "integer", "number", "boolean"):
        found = {"type": kind}
    else:
        raise UntranslatableError(f"{alias}: has no type of Pulumi (got {json.dumps(node)})")
    return {**found, "plain": True}


def _enum(node: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": node["type"],
        "description": _described({**node, "default": None}),
        "enum": [{"name": _words(each), "value": each} for each in node["enum"]],
    }


def _described(node: Mapping[str, Any]) -> str:
    default = node.get("default")
    shown = "" if isinstance(default, Mapping) or default in (None, "") else f" The default is {json.dumps(default)}."
    return f"{' '.join(node.get('description', '').split())}{shown}".strip()


def _words(text: str) -> str:
    """Returns a name such as BatchJob for a text such as batch/job."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", text))


def _token(package: str, name: str) -> str:
    return f"#/types/{package}:index:{name}"
