"""Settings that the stack passes through to Kueue, under Kueue's own names in snake case.

kueue.crds.json has the schemas of the CRDs in the pinned chart (`make schema`). Kueue's Configuration has no CRD, so
kueue.configuration.json is written by hand, after apis/config/v1beta2/configuration_types.go and
pkg/config/validation.go of sigs.k8s.io/kueue. The schemas lack the rules between fields (x-kubernetes-validations). The
API server judges these rules when it gets the object.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from components.base.spec import Spec

_FOLDER = Path(__file__).resolve().parent
CRDS = "kueue.crds.json"


@cache
def _schemas() -> dict[str, Any]:
    files = [_FOLDER / CRDS, _FOLDER / "kueue.configuration.json"]
    return {kind: schema for file in files for kind, schema in json.loads(file.read_text(encoding="utf-8")).items()}


class PassedSpec(Spec):
    """Settings with our own fields, next to fields of an object of Kueue. stacks/passed_fields.py checks the fields of
    Kueue, because it can report several mistakes at once."""

    model_config = ConfigDict(extra="allow")
    kind: ClassVar[str]
    defaults: ClassVar[str] = ""  # what we add, in a sentence for the operator

    @classmethod
    def schema_of_kueue(cls) -> Mapping[str, Any]:
        """Returns the JSON schema of the fields that are passed through, with names in snake case."""
        schema: Mapping[str, Any] = _schemas()[cls.kind]
        return schema

    def passed(self) -> dict[str, Any]:
        """Returns the fields of Kueue as the API has them."""
        fields: dict[str, Any] = _with_kueues_names(self.model_extra or {}, self.schema_of_kueue())
        return fields

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        made = handler(schema)
        passed = cls.schema_of_kueue()["properties"]
        text = f"Fields of Kueue: {', '.join(f'`{name}`' for name in passed)}. {cls.defaults}".strip()
        handler.resolve_ref_schema(made)["propertyNames"] = {"enum": [*cls.model_fields, *passed], "description": text}
        return made


def _with_kueues_names(value: Any, schema: Mapping[str, Any]) -> Any:
    """Returns the value with Kueue's names of fields, in the order of the schema. The keys of other maps, such as
    labels, stay and are sorted, because the engine does not keep the order of maps."""
    if isinstance(value, list):
        return [_with_kueues_names(each, schema.get("items", {})) for each in value]
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        return {_camel_case(name): _with_kueues_names(value[name], known[name]) for name in known if name in value}
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def _camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
