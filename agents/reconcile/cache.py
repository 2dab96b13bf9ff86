"""Stores the nodes, bound pods and ResourceSlices that reconcile has listed. Watches keep these objects up to date."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
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
from agents.runtime.items import ItemProblems, Unjudged, judged
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
    problems: ItemProblems
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
        return {node: _published(found) for node, found in of_node.items()}

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

    def add_node(self, item: Object) -> Node:
        """Adds a new or changed node to the cache."""
        node = self.nodes[named(item)] = node_of(item)
        return node

    def add_pod(self, item: Object) -> PodRequests | None:
        """Adds a bound pod to the cache. Returns the pod's requests, or None if all requests are 0."""
        pod = Pod(item)
        seat = self.problems.judge("pod", str(pod), partial(_seat, pod, self.names), lambda why: None)
        if seat is None or seat == PodRequests(seat.node):
            return None
        self.seats[uid_of(item)] = seat
        return seat

    def add_slice(self, item: Object) -> DeviceSlice | None:
        """Adds a new or changed ResourceSlice to the cache. Returns None if the ResourceSlice contains no GPU of a
        node.
        """
        name, found = named(item), slice_of(item, self.names)
        self.problems.note("ResourceSlice", name, None if found is None else found.problem)
        if found is None:
            self.slices.pop(name, None)
        else:
            self.slices[name] = found
        return found


def _seat(pod: Pod, names: Names) -> PodRequests | None:
    node = pod.node
    if node is None:
        return None
    found = judged(lambda: PodRequests(node, pod.request(names.gpumem)))
    return PodRequests(node, problem=found.why) if isinstance(found, Unjudged) else found


def _apply(held: dict[str, Held], key: str, event: Object, add: Callable[[Object], object]) -> bool:
    before = held.get(key)
    if event["type"] == "DELETED":
        held.pop(key, None)
    else:
        add(event["object"])
    return held.get(key) != before


def _published(slices: Sequence[DeviceSlice]) -> PublishedDevices:
    found = judged(lambda: published_devices(slices))
    return PublishedDevices(problem=found.why) if isinstance(found, Unjudged) else found


def read(api: Api, ledger: Ledger, problems: ItemProblems) -> NodeCache:
    """Lists the nodes, the bound pods and, if a pool needs them, the ResourceSlices. Raises ApiError."""
    cache = NodeCache(names=ledger.names, problems=problems)
    nodes = read_list(api, NODES, cache.add_node)
    pods = read_list(api, PODS, cache.add_pod, BOUND)
    slices = (read_list(api, SLICES, cache.add_slice),) if ledger.reads_slices else ()
    cache.sources = (nodes.source, pods.source, *(each.source for each in slices))
    return cache
