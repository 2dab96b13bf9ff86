"""The nodes and what is bound to them: listed once, then kept up by watches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from agents.api import Api, Object
from agents.capacity import Snapshot
from agents.errors import AgentError
from agents.nodes import NODES, Node, node_of
from tenancy.quantity import QuantityError
from tenancy.workload import pod_request

PODS = "/api/v1/pods"
# Bound and not ended: what the scheduler counts against a node.
BOUND = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}


Held = TypeVar("Held")


@dataclass(frozen=True)
class Seat:
    """What a bound pod requests on its node, in whole MiB."""

    node: str
    mib: int


@dataclass(kw_only=True)
class View:
    """The nodes by name, and by uid the bound pods that request `resource`. The versions are those of the lists."""

    resource: str
    nodes: dict[str, Node] = field(default_factory=dict)
    seats: dict[str, Seat] = field(default_factory=dict)
    nodes_version: str = ""
    pods_version: str = ""

    def snapshot(self) -> Snapshot:
        """What there is to decide on, in the order of the nodes' names."""
        bound_mib: dict[str, int] = {}
        for seat in self.seats.values():
            bound_mib[seat.node] = bound_mib.get(seat.node, 0) + seat.mib
        return Snapshot(nodes=tuple(self.nodes[name] for name in sorted(self.nodes)), bound_mib=bound_mib)

    def tell(self, event: Object) -> bool:
        """An event of a watch of the NODES, or of the PODS that are BOUND; whether there is anything else to decide on:
        most events are heartbeats of kubelets. Raises AgentError as `read` does."""
        kind, metadata = event["object"].get("kind"), event["object"]["metadata"]
        if event["type"] == "BOOKMARK":
            return False
        if kind == "Node":
            return _tell(self.nodes, metadata["name"], event, self.add_nodes)
        return kind == "Pod" and _tell(self.seats, metadata["uid"], event, self.add_pods)

    def add_nodes(self, items: Sequence[Object]) -> None:
        """Nodes, or what became of them."""
        for node in map(node_of, items):
            self.nodes[node.name] = node

    def add_pods(self, items: Sequence[Object]) -> None:
        """Bound pods, or what became of them; what they request cannot change."""
        for pod in items:
            metadata = pod["metadata"]
            try:
                request = pod_request(pod["spec"], self.resource)
            except QuantityError as error:
                raise AgentError(f"pod {metadata['namespace']}/{metadata['name']}: {self.resource}: {error}") from None
            if request:
                self.seats[metadata["uid"]] = Seat(pod["spec"]["nodeName"], request)


def _tell(held: dict[str, Held], key: str, event: Object, add: Callable[[Sequence[Object]], None]) -> bool:
    before = held.get(key)
    if event["type"] == "DELETED":
        held.pop(key, None)
    else:
        add([event["object"]])
    return held.get(key) != before


def read(api: Api, resource: str) -> View:
    """Every node, and every bound pod that requests `resource`.

    Raises ApiError, and AgentError for a pod whose request cannot be read: a sum that lacks one would be too low.
    """
    view = View(resource=resource)
    view.nodes_version = _list(api, NODES, {}, view.add_nodes)
    view.pods_version = _list(api, PODS, BOUND, view.add_pods)
    return view


def _list(api: Api, path: str, parameters: Mapping[str, str], add: Callable[[Sequence[Object]], None]) -> str:
    """Adds every object of a list. Returns the list's version."""
    version = ""
    for page in api.pages(path, **parameters):
        version = page["metadata"]["resourceVersion"]
        add(page["items"])
        del page  # before the next one is read
    return version
