"""Writes the schemas of Kueue's CRDs in the pinned chart for components/base/passed.py (`make schema`)."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from components.base.passed import CRDS
from tenancy.names import KUEUE_API

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / ".toolchain" / "charts" / "kueue" / "templates" / "crd"
FILE = ROOT / "components" / "base" / CRDS
# The kinds with fields that the stack passes through. Of each kind: the fields that the stack makes from its settings.
_PASSED = {
    "ClusterQueue": (
        "admissionChecksStrategy",
        "cohortName",
        "fairSharing",
        "namespaceSelector",
        "resourceGroups",
    ),
    "LocalQueue": ("clusterQueue", "fairSharing"),
    "ProvisioningRequestConfig": (),
    "ResourceFlavor": ("topologyName",),
}
# The keywords that JSON Schema judges too.
_JUDGED = (
    "type",
    "anyOf",
    "pattern",
    *(f"{bound}{what}" for bound in ("min", "max") for what in ("imum", "Length", "Items", "Properties")),
)


def spec_schema(kind: str) -> dict[str, Any]:
    """Returns the OpenAPI schema of a kind's spec, as the chart has it."""
    files = (path.read_text(encoding="utf-8") for path in CHART.glob("*.yaml"))
    (found,) = (text for text in files if f"\n    kind: {kind}\n" in text)
    text = "\n".join(line for line in found[found.index("  versions:") :].splitlines() if "{{" not in line)
    versions = yaml.load(text, yaml.CSafeLoader)["versions"]
    (schema,) = (each["schema"] for each in versions if each["name"] == KUEUE_API.partition("/")[2])
    spec: dict[str, Any] = schema["openAPIV3Schema"]["properties"].get("spec", {"type": "object"})
    return spec


def closed(node: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema with what JSON Schema judges. The API server would drop an unknown field, so no object accepts
    one."""
    if "enum" in node:
        return {"enum": node["enum"]}
    made = {key: node[key] for key in _JUDGED if key in node}
    if "pattern" in made:  # Python allows the flag (?i) only at the start of a regular expression.
        made["pattern"] = made["pattern"].replace("^(?i)", "(?i)^")
    if "properties" in node:
        made["properties"] = {name: closed(child) for name, child in node["properties"].items()}
        made["additionalProperties"] = False
    if "required" in node:
        made["required"] = node["required"]
    made |= {key: closed(node[key]) for key in ("items", "additionalProperties") if isinstance(node.get(key), Mapping)}
    return made


def _in_snake_case(node: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(node)
    if "properties" in node:
        made["properties"] = {_snake_case(name): _in_snake_case(child) for name, child in node["properties"].items()}
    if "required" in node:
        made["required"] = [_snake_case(name) for name in node["required"]]
    if "items" in node:
        made["items"] = _in_snake_case(node["items"])
    return made


def _snake_case(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name)


def text() -> str:
    """Returns the text of kueue.crds.json."""
    schemas = {}
    for kind, made_by_us in _PASSED.items():
        spec = closed(spec_schema(kind))
        spec["properties"] = {name: child for name, child in spec["properties"].items() if name not in made_by_us}
        schemas[kind] = _in_snake_case(spec)
    return json.dumps(schemas, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
