"""Makes the JSON schema of a stack file from the models of the settings.

Editors use the schema to complete and check stack files. The schema is written in Draft 7, which the YAML language
server reads. The schema does not check references and relations between keys, but the check of the settings does.
"""

import json
from pathlib import Path
from typing import Any

from stacks import settings_page
from stacks.problems import PROVIDERS
from stacks.settings import StackSettings
from stacks.stackfile import PULUMI_KEYS
from tenancy.names import PROJECT


def settings_schema() -> dict[str, Any]:
    """Returns the schema of all settings, with keys without the project's name."""
    found: dict[str, Any] = _tidied(StackSettings.model_json_schema())
    return found


def stack_file_schema() -> dict[str, Any]:
    """Returns the schema of a stack file."""
    settings = settings_schema()
    definitions, parts = settings["$defs"], settings["properties"]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"Stack file of {PROJECT}",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                "description": settings["description"],
                "properties": {
                    **{f"{PROJECT}:{name}": part for name, part in parts.items()},
                    **{name: {"$ref": f"#/properties/config/properties/{PROJECT}:{name}"} for name in parts},
                },
                "patternProperties": {f"^({'|'.join(PROVIDERS)}):.": True},
                "additionalProperties": False,
                "allOf": [_once(name, required=name in (*settings["required"], "pools")) for name in parts],
            },
            **{name: {"description": text} for name, text in PULUMI_KEYS.items()},
        },
        "additionalProperties": False,
        "$defs": definitions,
    }


def _spellings(name: str) -> list[dict[str, Any]]:
    """Returns the two spellings of a key, with the project's name and without it.

    Pulumi's engine treats the two spellings of a key as the same key.
    """
    return [{"required": [f"{PROJECT}:{name}"]}, {"required": [name]}]


_WITH_CLUSTERS = [
    {"required": [name], "properties": {name: {"required": ["clusters"]}}} for name in (f"{PROJECT}:queues", "queues")
]


def _once(name: str, *, required: bool = False) -> dict[str, Any]:
    """Returns a schema that allows a key in only one of its spellings. A stack with worker clusters needs no pools."""
    at_most, exactly = {"not": {"allOf": _spellings(name)}}, {"oneOf": _spellings(name)}
    if not required:
        return at_most
    return {"if": {"anyOf": _WITH_CLUSTERS}, "then": at_most, "else": exactly} if name == "pools" else exactly


def generated_files(root: Path) -> dict[Path, str]:
    """Returns each file of the project that is generated from the settings, with its text."""
    return {
        root / "docs/config.schema.json": _json(stack_file_schema()),
        root / "docs/reference/settings.md": settings_page.render(settings_schema()),
    }


def _json(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2) + "\n"


def _tidied(node: Any) -> Any:
    """Returns pydantic's schema without its generated titles and nulls.

    In the returned schema, `propertyNames` has the pattern for the keys of a map.
    """
    if isinstance(node, list):
        return [_tidied(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidy = {key: _tidied(value) for key, value in node.items() if not (key == "title" and isinstance(value, str))}
    if tidy.get("default", ...) is None:
        del tidy["default"]
    if {"type": "null"} in tidy.get("anyOf", ()):
        (kind,) = (option for option in tidy.pop("anyOf") if option != {"type": "null"})
        tidy = {**kind, **tidy}
    if "patternProperties" in tidy:
        ((pattern, values),) = tidy.pop("patternProperties").items()
        tidy |= {"propertyNames": {"pattern": pattern}, "additionalProperties": values}
    return tidy
