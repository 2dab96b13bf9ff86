"""The nodes, bound pods and ResourceSlices that reconcile has listed. Watches keep these objects up to date."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from agents.kube.client import Api, Object
from agents.kube.device_slices import DeviceSlice, PublishedDevices, published_devices, slice_of
from agents.kube.informer import WatchSource, read_list
from agents.kube.nodes import NODES, Node, node_of
from agents.kube.pods import BOUND, PODS, Pod, PodError
from agents.kube.slices import SLICES
from agents.reconcile.decide import BoundRequests, ClusterState
from agents.reconcile.labels import VerifiedEvidence
from tenancy.ledger import Ledger
from tenancy.names import Names

Held = TypeVar("Held")


@dataclass(frozen=True)
class PodRequests:
    """The MiB and the number of devices that a bound pod requests. `problem` is the reason for an invalid request."""

    node: str
    mib: int = 0
    devices: int = 0
    problem: str | None = None


@dataclass(kw_only=True)
class NodeCache:
    """Stores nodes by name, bound pods with GPU requests by UID, and ResourceSlices by name.

    `sources` are the sources for the watches. `verified` and `now` come from the pass that listed the objects: see
    ClusterState.
    """

    names: Names
    nodes: dict[str, Node] = field(default_factory=dict)
    seats: dict[str, PodRequests] = field(default_factory=dict)
    slices: dict[str, DeviceSlice] = field(default_factory=dict)
    sources: tuple[WatchSource, ...] = ()
    verified: Mapping[str, VerifiedEvidence] = field(default_factory=dict)
    now: int = 0

    def snapshot(self) -> ClusterState:
        """Returns the state for `decide`, with the nodes sorted by name."""
        bound: dict[str, BoundRequests] = {}
        for seat in self.seats.values():
            before = bound.get(seat.node, BoundRequests())
            bound[seat.node] = BoundRequests(
                mib=before.mib + seat.mib,
                devices=before.devices + seat.devices,
                unreadable=(*before.unreadable, seat.problem) if seat.problem else before.unreadable,
            )
        return ClusterState(
            nodes=tuple(self.nodes[name] for name in sorted(self.nodes)),
            bound=bound,
            published=self.published(),
            verified=self.verified,
            now=self.now,
        )

    def published(self) -> dict[str, PublishedDevices]:
        of_node: dict[str, list[DeviceSlice]] = {}
        for found in self.slices.values():
            of_node.setdefault(found.node, []).append(found)
        return {node: published_devices(found) for node, found in of_node.items()}

    def apply(self, event: Object) -> bool:
        """Applies an event of a watch.

        Returns False if the event changed nothing relevant, for example only a time in the Node's status.
        """
        kind, metadata = event["object"].get("kind"), event["object"]["metadata"]
        if event["type"] == "BOOKMARK":
            return False
        if kind == "Node":
            return _apply(self.nodes, metadata["name"], event, self.add_node)
        if kind == "ResourceSlice":
            return _apply(self.slices, metadata["name"], event, self.add_slice)
        return kind == "Pod" and _apply(self.seats, metadata["uid"], event, self.add_pod)

    def add_node(self, item: Object) -> Node:
        node = node_of(item)
        self.nodes[node.name] = node
        return node

    def add_pod(self, item: Object) -> PodRequests | None:
        """Adds a bound pod. Returns its requests, or None if all its requests are 0."""
        pod = Pod(item)
        seat = _seat(pod, self.names)
        if not seat.node or seat == PodRequests(seat.node):
            return None
        self.seats[pod.uid] = seat
        return seat

    def add_slice(self, item: Object) -> DeviceSlice | None:
        """Adds a new or changed ResourceSlice. Returns None if the ResourceSlice contains no GPU of a node."""
        name, found = item["metadata"]["name"], slice_of(item, self.names)
        if found is None:
            self.slices.pop(name, None)
        else:
            self.slices[name] = found
        return found


def _seat(pod: Pod, names: Names) -> PodRequests:
    node = pod.node or ""
    try:
        return PodRequests(node, pod.request(names.gpumem), pod.request(names.gpu_count))
    except PodError as error:
        return PodRequests(node, problem=str(error))


def _apply(held: dict[str, Held], key: str, event: Object, add: Callable[[Object], object]) -> bool:
    before = held.get(key)
    if event["type"] == "DELETED":
        held.pop(key, None)
    else:
        add(event["object"])
    return held.get(key) != before


def read(api: Api, ledger: Ledger) -> NodeCache:
    """Lists nodes, bound pods and, if a pool needs them, ResourceSlices. Raises ApiError."""
    cache = NodeCache(names=ledger.names)
    nodes = read_list(api, NODES, cache.add_node)
    pods = read_list(api, PODS, cache.add_pod, BOUND)
    slices = (read_list(api, SLICES, cache.add_slice),) if ledger.reads_slices else ()
    cache.sources = (nodes.source, pods.source, *(each.source for each in slices))
    return cache
