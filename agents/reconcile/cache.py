"""The nodes and what is bound to them: listed by a pass, then kept up to date by watches."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from agents.kube.client import Api, Object
from agents.kube.informer import WatchSource, read_list
from agents.kube.nodes import NODES, Node, node_of
from agents.kube.pods import BOUND, PODS, Pod
from agents.reconcile.decide import ClusterState

Held = TypeVar("Held")


@dataclass(frozen=True)
class BoundPod:
    """What a bound pod requests on its node, in whole MiB."""

    node: str
    mib: int


@dataclass(kw_only=True)
class NodeCache:
    """The nodes by name, and by uid the bound pods that request `resource`. A watch of `sources` goes on from here."""

    resource: str
    nodes: dict[str, Node] = field(default_factory=dict)
    seats: dict[str, BoundPod] = field(default_factory=dict)
    sources: tuple[WatchSource, ...] = ()

    def snapshot(self) -> ClusterState:
        """What there is to decide on, in the order of the nodes' names."""
        bound_mib: dict[str, int] = {}
        for seat in self.seats.values():
            bound_mib[seat.node] = bound_mib.get(seat.node, 0) + seat.mib
        return ClusterState(nodes=tuple(self.nodes[name] for name in sorted(self.nodes)), bound_mib=bound_mib)

    def apply(self, event: Object) -> bool:
        """An event of the watches; whether there is anything else to decide on: most events are heartbeats of kubelets.
        Raises PodError as `read` does."""
        kind, metadata = event["object"].get("kind"), event["object"]["metadata"]
        if event["type"] == "BOOKMARK":
            return False
        if kind == "Node":
            return _apply(self.nodes, metadata["name"], event, self.add_node)
        return kind == "Pod" and _apply(self.seats, metadata["uid"], event, self.add_pod)

    def add_node(self, item: Object) -> Node:
        """A node, new or changed."""
        node = node_of(item)
        self.nodes[node.name] = node
        return node

    def add_pod(self, item: Object) -> BoundPod | None:
        """A bound pod, new or changed; what it requests cannot change. None where it requests nothing."""
        pod = Pod(item)
        request = pod.request(self.resource)
        if not request or not pod.node:
            return None
        self.seats[pod.uid] = seat = BoundPod(pod.node, request)
        return seat


def _apply(held: dict[str, Held], key: str, event: Object, add: Callable[[Object], object]) -> bool:
    before = held.get(key)
    if event["type"] == "DELETED":
        held.pop(key, None)
    else:
        add(event["object"])
    return held.get(key) != before


def read(api: Api, resource: str) -> NodeCache:
    """Every node, and every bound pod that requests `resource`.

    Raises ApiError, and PodError for a pod whose request cannot be read: a sum that lacks one would be too low.
    """
    view = NodeCache(resource=resource)
    nodes = read_list(api, NODES, view.add_node)
    pods = read_list(api, PODS, view.add_pod, BOUND)
    view.sources = (nodes.source, pods.source)
    return view
