"""Reads the cluster's nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.kube.client import Api, Object
from agents.kube.events import Reference
from agents.kube.fields import name_at, named, text_at
from agents.kube.paths import api_path
from agents.runtime.items import ItemProblems
from tenancy.names import Names
from tenancy.workload import map_at

NODES = api_path("v1", "nodes")
# This text replaces an unreadable field. The text is an invalid quantity and an invalid list of devices, and matches no
# pool.
_UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A Node. The quantities of a Node are strings, as in the API.

    A comparison of two Nodes ignores the resourceVersion and the annotations.
    """

    name: str
    uid: str = ""
    resource_version: str = field(default="", compare=False)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict, compare=False)
    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Node", name=self.name, uid=self.uid)


def excluded_devices(annotations: Mapping[str, str], names: Names) -> frozenset[int]:
    """Returns the indices of the devices that the node's annotation excludes. Raises ValueError."""
    text = annotations.get(names.device_excluded, "")
    return frozenset(int(part) for part in str(text).split(",") if part.strip())


def read_nodes(api: Api, problems: ItemProblems) -> tuple[Node, ...]:
    """Returns every readable node of the cluster. Raises ApiError."""
    return tuple(node for item in api.items(NODES) if (node := read_node(item, problems)))


def read_node(item: Object, problems: ItemProblems) -> Node | None:
    """Returns the Node, or None if a field of the Node is unreadable. A pass ignores an unreadable Node."""
    return problems.judge("node", named(item), lambda: node_of(item), lambda why: None)


def node_of(item: Object) -> Node:
    """Decodes a Node. Raises FieldError and ShapeError."""
    metadata = map_at(item, "metadata")
    return Node(
        name=name_at(metadata, "name"),
        uid=text_at(metadata, "uid"),
        resource_version=text_at(metadata, "resourceVersion"),
        labels=_texts(metadata, "labels"),
        annotations=_texts(metadata, "annotations"),
        capacity=_texts(item, "status", "capacity"),
        allocatable=_texts(item, "status", "allocatable"),
    )


def _texts(item: Object, *path: str) -> Mapping[str, str]:
    """Returns the map. A text that is too long or not printable ASCII is replaced by a text that matches nothing."""
    found = map_at(item, *path)
    return {key: text_at(found, key) or (value and _UNREADABLE) or "" for key, value in found.items()}
