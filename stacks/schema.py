"""The JSON schema of a whole stack file, from the settings' own models: what an editor completes and checks.

Draft 7, which the YAML language server reads. References and relations are the settings' to refuse.
"""

import json
from typing import Any

from stacks.settings import StackSettings
from tenancy.names import PROJECT

_PULUMI_KEYS = {
    "encryptionsalt": "Pulumi's own: salt of the passphrase that encrypts secrets.",
    "encryptedkey": "Pulumi's own: data key, encrypted by the secrets provider.",
    "secretsprovider": "Pulumi's own: where the key for secrets is.",
}


def stack_file_schema() -> dict[str, Any]:
    """Draft 7, deterministic."""
    settings = _tidied(StackSettings.model_json_schema())
    definitions, parts = settings["$defs"], settings["properties"]
    declared = "|".join(parts)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"Stack file of {PROJECT}",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                "description": settings["description"],
                "required": [f"{PROJECT}:{name}" for name in settings["required"]],
                "properties": {f"{PROJECT}:{name}": part for name, part in parts.items()},
                # Other projects' keys are theirs; ours are all declared.
                "patternProperties": {f"^{PROJECT}:(?!({declared})$)": False},
            },
            **{name: {"type": "string", "description": text} for name, text in _PULUMI_KEYS.items()},
        },
        "$defs": definitions,
    }


def render() -> str:
    """The schema as docs/config.schema.json holds it."""
    return json.dumps(stack_file_schema(), indent=2) + "\n"


def _tidied(node: Any) -> Any:
    """pydantic's schema without its generated titles and nulls; a map refuses names of another form than its keys'."""
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
