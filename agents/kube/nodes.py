"""Reads the cluster's nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.kube.client import Api, Object
from agents.kube.events import Reference
from agents.kube.paths import api_path
from tenancy.names import Names
from tenancy.workload import map_at

NODES = api_path("v1", "nodes")
_UUID = "GPU-"  # the beginning of the UUID that NVML gives a device


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


@dataclass(frozen=True)
class ExcludedDevices:
    """The devices that a node's annotation excludes, by UUID or by index.

    A UUID stays with its card. After a fault or a restart, an index may name another card.
    """

    listed: frozenset[str]

    @staticmethod
    def of(annotations: Mapping[str, str], names: Names) -> "ExcludedDevices":
        """Raises ValueError if the annotation has anything but UUIDs and indices."""
        parts = str(annotations.get(names.device_excluded, "")).split(",")
        given = [part.strip() for part in parts if part.strip()]
        if not all(each.isdecimal() or each.lower().startswith(_UUID.lower()) for each in given):
            raise ValueError(f"neither a UUID nor an index is in {sorted(given)}")
        return ExcludedDevices(
            frozenset(each.lstrip("0") or "0" if each.isdecimal() else each.lower() for each in given)
        )

    def has(self, uuid: str, index: int) -> bool:
        return not self.listed.isdisjoint((uuid.lower(), str(index)))


def read_nodes(api: Api) -> tuple[Node, ...]:
    """Returns every node of the cluster. Raises ApiError."""
    return tuple(map(node_of, api.items(NODES)))


def node_of(item: Object) -> Node:
    metadata = item["metadata"]
    return Node(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        labels=map_at(metadata, "labels"),
        annotations=map_at(metadata, "annotations"),
        capacity=map_at(item, "status", "capacity"),
        allocatable=map_at(item, "status", "allocatable"),
    )
