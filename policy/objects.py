"""A Kubernetes object of the graph, as plain data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policy.unknown import is_unknown
from tenancy.workload import ShapeError, at, given, text, texts

__all__ = ["Object", "from_json", "text", "texts"]


def from_json(written: str) -> Any:
    """Raises ShapeError, also for a number of thousands of digits and for lists a thousand deep."""
    try:
        return json.loads(written)
    except (ValueError, RecursionError) as error:
        raise ShapeError(f"it is no JSON that can be read: {error}") from None


def _text_or_unknown(metadata: Mapping[str, Any], field: str, default: str) -> Any:
    """Returns a string or an unknown value; raises ShapeError for anything else."""
    value = given(metadata, field, default)
    if not is_unknown(value) and not isinstance(value, str):
        raise ShapeError(f"metadata.{field} must be a string (got {value!r})")
    return value


@dataclass(frozen=True)
class Object:
    """A resource that the program declares, with the API's manifest. `kind` is from the type token: a `DeploymentPatch`
    is no Deployment. `urn` is the Pulumi resource."""

    kind: str
    group: str
    manifest: Mapping[str, Any]
    urn: str

    @property
    def qualified_kind(self) -> str:
        """The kind with its API group, as kubectl writes it: Deployment.apps, Pod."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def name(self) -> Any:
        return _text_or_unknown(at(self.manifest, "metadata"), "name", "")

    @property
    def namespace(self) -> Any:
        """The namespace, or the API's default."""
        return _text_or_unknown(at(self.manifest, "metadata"), "namespace", "default")

    @property
    def labels(self) -> Mapping[str, Any]:
        return at(self.manifest, "metadata", "labels")

    def __str__(self) -> str:
        """For messages, also where a part is unknown: `Deployment immich/immich-ml`."""
        metadata = self.manifest.get("metadata")
        parts = [metadata.get(part) for part in ("namespace", "name")] if type(metadata) is dict else []
        known = [str(part) for part in parts if not is_unknown(part) and part]
        return f"{self.kind} {'/'.join(known) or self.urn.rpartition('::')[2]}"
