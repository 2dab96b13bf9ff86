"""A Kubernetes object of the graph, as plain data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from policy.unknown import is_unknown
from tenancy.workload import ShapeError, at, given, text, texts

_LONGEST = 64 * 1024  # characters of YAML within a value
__all__ = ["Object", "all_from_yaml", "from_json", "text", "texts"]


def all_from_yaml(written: str) -> list[Any]:
    """Every document. Raises ShapeError, also for text that is too long to read, too deep, or that uses aliases, by
    which a few lines stand for millions."""
    if len(written) > _LONGEST:
        raise ShapeError(f"it has {len(written)} characters, {_LONGEST} at most are read")
    try:
        return list(yaml.load_all(written, Loader=_Plain))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ShapeError(f"it is no YAML that can be read: {error}") from None


class _Plain(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it uses an alias")
        return super().compose_node(parent, index)


def from_json(written: str) -> Any:
    """Raises ShapeError, also for a number of thousands of digits and for lists a thousand deep."""
    try:
        return json.loads(written)
    except (ValueError, RecursionError) as error:
        raise ShapeError(f"it is no JSON that can be read: {error}") from None


def _text_or_unknown(metadata: Mapping[str, Any], field: str, default: str) -> Any:
    """Raises ShapeError for what is neither: names are looked up."""
    value = given(metadata, field, default)
    if not is_unknown(value) and not isinstance(value, str):
        raise ShapeError(f"metadata.{field} must be a string (got {value!r})")
    return value


@dataclass(frozen=True)
class Object:
    """A resource that the program declares. `manifest` is what the API gets; `kind` is the type token's, so that a
    `DeploymentPatch` is told from a Deployment. `urn` is the Pulumi resource."""

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
        """For a namespaced kind; the API's default where none is given."""
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
