"""Stores the nodes, bound pods and ResourceSlices that reconcile has listed. Watches keep these objects up to date."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.kube.client import Api, Object
from agents.kube.device_slices import DeviceSlice, PublishedDevices, published_devices, slice_of
from agents.kube.informer import WatchSource
from agents.kube.nodes import NODES, Node, node_of
from agents.kube.pods import BOUND, PODS, Pod
from agents.kube.slices import SLICES
from agents.kube.store import Store
from agents.reconcile.decide import BoundRequests, ClusterState
from agents.reconcile.labels import VerifiedEvidence
from agents.runtime.items import Unjudged, judged
from tenancy.ledger import Ledger
from tenancy.names import Names


@dataclass(frozen=True)
class PodRequests:
    """The MiB that a bound pod requests. `problem` is the reason if the pod's request is invalid."""

    node: str
    mib: int = 0
    problem: str | None = None


@dataclass(kw_only=True)
class NodeCache:
    """Stores the nodes, the bound pods with GPU requests, and the ResourceSlices of GPUs.

    `sources` has the points at which the watches start. `verified` and `now` come from the pass that listed the
    objects. ClusterState explains both fields.
    """

    names: Names
    sources: tuple[WatchSource, ...] = ()
    verified: Mapping[str, VerifiedEvidence] = field(default_factory=dict)
    now: int = 0

    def __post_init__(self) -> None:
        self.nodes = Store[Node](path=NODES, keep=node_of)
        self.seats = Store[PodRequests](path=PODS, keep=self._requests, parameters=BOUND)
        self.slices = Store[DeviceSlice](path=SLICES, keep=lambda item: slice_of(item, self.names))

    def snapshot(self) -> ClusterState:
        """Returns the state for `decide`. The nodes are sorted by name."""
        bound: dict[str, BoundRequests] = {}
        for seat in self.seats.kept.values():
            before = bound.get(seat.node, BoundRequests())
            bound[seat.node] = BoundRequests(
                mib=before.mib + seat.mib,
                unreadable=(*before.unreadable, seat.problem) if seat.problem else before.unreadable,
            )
        return ClusterState(
            nodes=tuple(node for _, node in sorted(self.nodes.kept.items())),
            bound=bound,
            published=self.published(),
            verified=self.verified,
            now=self.now,
        )

    def published(self) -> dict[str, PublishedDevices]:
        of_node: dict[str, list[DeviceSlice]] = {}
        for found in self.slices.kept.values():
            of_node.setdefault(found.node, []).append(found)
        return {node: published_devices(found) for node, found in of_node.items()}

    def apply(self, event: Object) -> bool:
        """Applies an event of a watch to the cache.

        Returns False if the event changes nothing that reconcile needs, for example only a time in the Node's status.
        """
        stores: dict[str, Store[Any]] = {"Node": self.nodes, "Pod": self.seats, "ResourceSlice": self.slices}
        return event["type"] != "BOOKMARK" and stores[event["object"]["kind"]].apply(event)

    def _requests(self, item: Object) -> PodRequests | None:
        pod = Pod(item)
        if pod.node is None:
            return None
        mib = judged(lambda: pod.request(self.names.gpumem))
        if isinstance(mib, Unjudged):
            return PodRequests(pod.node, problem=mib.why)
        return PodRequests(pod.node, mib) if mib else None


def read(api: Api, ledger: Ledger) -> NodeCache:
    """Lists the nodes, the bound pods and, if a pool needs them, the ResourceSlices. Raises ApiError."""
    cache = NodeCache(names=ledger.names)
    stores = (cache.nodes, cache.seats, *((cache.slices,) if ledger.reads_slices else ()))
    cache.sources = tuple(store.list(api) for store in stores)
    return cache
