"""Stores the nodes, bound pods and ResourceSlices that reconcile has listed. Watches keep these objects up to date."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from agents.kube.client import Api, Object
from agents.kube.device_slices import DeviceSlice, PublishedDevices, published_devices, slice_of
from agents.kube.fields import named, uid_of
from agents.kube.informer import WatchSource, read_list
from agents.kube.nodes import NODES, Node, node_of
from agents.kube.pods import BOUND, PODS, Pod
from agents.kube.slices import SLICES
from agents.reconcile.decide import BoundRequests, ClusterState
from agents.reconcile.labels import VerifiedEvidence
from agents.runtime.items import Unjudged, judged
from tenancy.ledger import Ledger
from tenancy.names import Names

Held = TypeVar("Held")


@dataclass(frozen=True)
class PodRequests:
    """The MiB that a bound pod requests. `problem` is the reason if the pod's request is invalid."""

    node: str
    mib: int = 0
    problem: str | None = None


@dataclass(kw_only=True)
class NodeCache:
    """Stores nodes by name, bound pods with GPU requests by UID, and ResourceSlices by name.

    `sources` has the points at which the watches start. `verified` and `now` come from the pass that listed the
    objects. ClusterState explains both fields.
    """

    names: Names
    nodes: dict[str, Node] = field(default_factory=dict)
    seats: dict[str, PodRequests] = field(default_factory=dict)
    slices: dict[str, DeviceSlice] = field(default_factory=dict)
    sources: tuple[WatchSource, ...] = ()
    verified: Mapping[str, VerifiedEvidence] = field(default_factory=dict)
    now: int = 0

    def snapshot(self) -> ClusterState:
        """Returns the state for `decide`. The nodes are sorted by name."""
        bound: dict[str, BoundRequests] = {}
        for seat in self.seats.values():
            before = bound.get(seat.node, BoundRequests())
            bound[seat.node] = BoundRequests(
                mib=before.mib + seat.mib,
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
        """Applies an event of a watch to the cache.

        Returns False if the event changes nothing that reconcile needs, for example only a time in the Node's status.
        """
        kind, name = event["object"].get("kind"), named(event["object"])
        if event["type"] == "BOOKMARK":
            return False
        if kind == "Node":
            return _apply(self.nodes, name, event, self.add_node)
        if kind == "ResourceSlice":
            return _apply(self.slices, name, event, self.add_slice)
        return kind == "Pod" and _apply(self.seats, uid_of(event["object"]), event, self.add_pod)

    def add_node(self, item: Object) -> Node | None:
        return _put(self.nodes, named(item), node_of(item))

    def add_pod(self, item: Object) -> PodRequests | None:
        """Adds a bound pod to the cache. Returns the pod's requests, or None if all requests are 0."""
        return _put(self.seats, uid_of(item), _requests(Pod(item), self.names))

    def add_slice(self, item: Object) -> DeviceSlice | None:
        """Adds a ResourceSlice to the cache. Returns None if the ResourceSlice contains no GPU of a node."""
        return _put(self.slices, named(item), slice_of(item, self.names))


def _requests(pod: Pod, names: Names) -> PodRequests | None:
    if pod.node is None:
        return None
    mib = judged(lambda: pod.request(names.gpumem))
    if isinstance(mib, Unjudged):
        return PodRequests(pod.node, problem=mib.why)
    return PodRequests(pod.node, mib) if mib else None


def _put(held: dict[str, Held], key: str, found: Held | None) -> Held | None:
    if found is None:
        held.pop(key, None)
    else:
        held[key] = found
    return found


def _apply(held: dict[str, Held], key: str, event: Object, add: Callable[[Object], object]) -> bool:
    before = held.get(key)
    if event["type"] == "DELETED":
        held.pop(key, None)
    else:
        add(event["object"])
    return held.get(key) != before


def read(api: Api, ledger: Ledger) -> NodeCache:
    """Lists the nodes, the bound pods and, if a pool needs them, the ResourceSlices. Raises ApiError."""
    cache = NodeCache(names=ledger.names)
    nodes = read_list(api, NODES, cache.add_node)
    pods = read_list(api, PODS, cache.add_pod, BOUND)
    slices = (read_list(api, SLICES, cache.add_slice),) if ledger.reads_slices else ()
    cache.sources = (nodes.source, pods.source, *(each.source for each in slices))
    return cache
