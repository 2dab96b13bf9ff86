"""A Kubernetes object of the resource graph, as plain data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policy.unknown import is_unknown
from tenancy.workload import ShapeError, map_at, text_at, texts_at, value_or

__all__ = ["Object", "from_json", "text_at", "texts_at"]


_AUTONAMED = "pulumi.com/autonamed"


def from_json(written: str) -> Any:
    """Decodes JSON. Raises ShapeError for invalid JSON."""
    try:
        return json.loads(written)
    except ValueError as error:
        raise ShapeError(f"it is no JSON that can be read: {error}") from None


def _text_or_unknown(manifest: Mapping[str, Any], field: str, default: str) -> Any:
    """Returns a field of an object's metadata if the field is a string or an unknown value. If all metadata is unknown,
    returns it. For any other value of the field, raises ShapeError."""
    metadata = manifest.get("metadata")
    value = metadata if is_unknown(metadata) else value_or(map_at(manifest, "metadata"), field, default)
    if not is_unknown(value) and not isinstance(value, str):
        raise ShapeError(f"metadata.{field} must be a string (got {value!r})")
    return value


@dataclass(frozen=True)
class Object:
    """Holds an object that the program declares, with its manifest for the API server. `kind` comes from Pulumi's type
    token, so that a patch has the kind `DeploymentPatch`, not `Deployment`. `urn` names the Pulumi resource,
    and `provider` its provider."""

    kind: str
    group: str
    manifest: Mapping[str, Any]
    urn: str
    provider: str = ""

    @property
    def qualified_kind(self) -> str:
        """Returns the kind with its API group, as kubectl writes both: Deployment.apps, Pod."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def name(self) -> Any:
        return _text_or_unknown(self.manifest, "name", "")

    @property
    def namespace(self) -> Any:
        """Returns the object's namespace, or `default` if the object names no namespace."""
        return _text_or_unknown(self.manifest, "namespace", "default")

    @property
    def is_named_anew(self) -> bool:
        """Returns True if Pulumi made up the object's name, which therefore differs from run to run."""
        return text_at(map_at(self.manifest, "metadata", "annotations"), _AUTONAMED) == "true"

    @property
    def labels(self) -> Mapping[str, Any]:
        return map_at(self.manifest, "metadata", "labels")

    def __str__(self) -> str:
        """Returns the object's name for messages, even if a part of the name is unknown: `Deployment
        immich/immich-ml`."""
        metadata = self.manifest.get("metadata")
        parts = [metadata.get(part) for part in ("namespace", "name")] if type(metadata) is dict else []
        known = [str(part) for part in parts if not is_unknown(part) and part]
        return f"{self.kind} {'/'.join(known) or self.urn.rpartition('::')[2]}"
