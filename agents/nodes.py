"""Nodes and the pods bound to them, as much of them as the agents decide on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.api import Api, Object
from agents.errors import AgentError
from agents.events import Reference
from tenancy.quantity import QuantityError
from tenancy.workload import pod_request

# Bound and not ended: what the scheduler counts against a node.
_BOUND = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A Node object; capacity and allocatable hold quantities as the API spells them."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Node", name=self.name, uid=self.uid)


def read_nodes(api: Api) -> tuple[Node, ...]:
    """Every node of the cluster. Raises ApiError."""
    return tuple(_node(item) for item in api.items("/api/v1/nodes"))


def read_bound(api: Api, resource: str) -> dict[str, int]:
    """The sum that the pods bound to each node request of `resource`; nodes without any are absent.

    Raises ApiError, and AgentError for a pod whose request cannot be read: a sum that lacks one would be too low.
    """
    bound: dict[str, int] = {}
    for pod in api.items("/api/v1/pods", fieldSelector=_BOUND):
        try:
            request = pod_request(pod["spec"], resource)
        except QuantityError as error:
            raise AgentError(
                f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}: {resource}: {error}"
            ) from None
        if request:
            name = pod["spec"]["nodeName"]
            bound[name] = bound.get(name, 0) + request
    return bound


def _node(item: Object) -> Node:
    metadata, status = item["metadata"], item.get("status") or {}
    return Node(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        labels=metadata.get("labels") or {},
        capacity=status.get("capacity") or {},
        allocatable=status.get("allocatable") or {},
    )
