"""The nodes, what is bound to them and, where a pool goes by ResourceSlices, their devices: listed by a pass, then kept
up to date by watches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from agents.kube.client import Api, Object
from agents.kube.informer import WatchSource, read_list
from agents.kube.nodes import NODES, Node, node_of
from agents.kube.pods import BOUND, PODS, Pod, PodError
from agents.kube.slices import CLAIMS, SLICES
from agents.reconcile.decide import Bound, ClusterState
from agents.reconcile.labels import Verified
from agents.reconcile.slices import DeviceSlice, Published, published, slice_of
from tenancy.ledger import Ledger
from tenancy.names import Names
from tenancy.workload import maps_at

Held = TypeVar("Held")


@dataclass(frozen=True)
class PodRequests:
    """What a bound pod requests on its node: whole MiB, and devices; `problem` where that cannot be read."""

    node: str
    mib: int = 0
    devices: int = 0
    problem: str | None = None


@dataclass(kw_only=True)
class NodeCache:
    """The nodes by name, by uid the bound pods that request our resources, and, where they are read, by name the
    ResourceSlices that show GPUs and by uid the nodes of the devices that a ResourceClaim has of the exporter's. A
    watch of `sources` goes on from here.

    `verified` and `now` are what the pass that listed gave: see ClusterState."""

    names: Names
    nodes: dict[str, Node] = field(default_factory=dict)
    seats: dict[str, PodRequests] = field(default_factory=dict)
    slices: dict[str, DeviceSlice] = field(default_factory=dict)
    claims: dict[str, frozenset[str]] = field(default_factory=dict)
    sources: tuple[WatchSource, ...] = ()
    verified: Mapping[str, Verified] = field(default_factory=dict)
    now: int = 0

    def snapshot(self) -> ClusterState:
        """What there is to decide on, in the order of the nodes' names."""
        bound: dict[str, Bound] = {}
        for seat in self.seats.values():
            before = bound.get(seat.node, Bound())
            bound[seat.node] = Bound(
                mib=before.mib + seat.mib,
                devices=before.devices + seat.devices,
                unreadable=(*before.unreadable, seat.problem) if seat.problem else before.unreadable,
            )
        return ClusterState(
            nodes=tuple(self.nodes[name] for name in sorted(self.nodes)),
            bound=bound,
            published=self.published(),
            claimed=self.claimed(),
            verified=self.verified,
            now=self.now,
        )

    def published(self) -> dict[str, Published]:
        """By name of the node, what its slices show."""
        of_node: dict[str, list[DeviceSlice]] = {}
        for found in self.slices.values():
            of_node.setdefault(found.node, []).append(found)
        return {node: published(found) for node, found in of_node.items()}

    def claimed(self) -> frozenset[str]:
        """The nodes whose devices claims have, or may be given."""
        offering = {node for node, published in self.published().items() if published.claimable}
        return frozenset(offering).union(*self.claims.values())

    def apply(self, event: Object) -> bool:
        """An event of the watches; whether there is anything else to decide on: most are heartbeats of kubelets."""
        kind, metadata = event["object"].get("kind"), event["object"]["metadata"]
        if event["type"] == "BOOKMARK":
            return False
        if kind == "Node":
            return _apply(self.nodes, metadata["name"], event, self.add_node)
        if kind == "ResourceSlice":
            return _apply(self.slices, metadata["name"], event, self.add_slice)
        if kind == "ResourceClaim":
            return _apply(self.claims, metadata["uid"], event, self.add_claim)
        return kind == "Pod" and _apply(self.seats, metadata["uid"], event, self.add_pod)

    def add_node(self, item: Object) -> Node:
        """A node, new or changed."""
        node = node_of(item)
        self.nodes[node.name] = node
        return node

    def add_pod(self, item: Object) -> PodRequests | None:
        """A bound pod, new or changed; what it requests cannot change. None where it requests nothing."""
        pod = Pod(item)
        seat = _seat(pod, self.names)
        if not seat.node or seat == PodRequests(seat.node):
            return None
        self.seats[pod.uid] = seat
        return seat

    def add_slice(self, item: Object) -> DeviceSlice | None:
        """A ResourceSlice, new or changed. None where it shows no GPU of a node."""
        name, found = item["metadata"]["name"], slice_of(item, self.names)
        if found is None:
            self.slices.pop(name, None)
        else:
            self.slices[name] = found
        return found

    def add_claim(self, item: Object) -> frozenset[str] | None:
        """A ResourceClaim, new or changed: our slices' pools are named after their nodes. None where it has nothing."""
        results = maps_at(item, "status", "allocation", "devices", "results")
        nodes = frozenset(str(each.get("pool")) for each in results if each.get("driver") == self.names.device_driver)
        if not nodes:
            self.claims.pop(item["metadata"]["uid"], None)
            return None
        self.claims[item["metadata"]["uid"]] = nodes
        return nodes


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
    """Every node, every bound pod that requests what is advertised, and, where a pool goes by them, every ResourceSlice
    that shows GPUs, and every ResourceClaim. Raises ApiError."""
    view = NodeCache(names=ledger.names)
    nodes = read_list(api, NODES, view.add_node)
    pods = read_list(api, PODS, view.add_pod, BOUND)
    slices = (read_list(api, SLICES, view.add_slice),) if ledger.reads_slices else ()
    claims = (read_list(api, CLAIMS, view.add_claim),) if ledger.moves else ()
    view.sources = (nodes.source, pods.source, *(each.source for each in slices), *(each.source for each in claims))
    return view
