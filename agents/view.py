"""The nodes and what is bound to them: listed once, then kept up by watches."""

from dataclasses import dataclass, field

from agents.api import Api, Object
from agents.capacity import Snapshot
from agents.errors import AgentError
from agents.nodes import NODES, Node, node_of
from tenancy.quantity import QuantityError
from tenancy.workload import pod_request

PODS = "/api/v1/pods"
# Bound and not ended: what the scheduler counts against a node.
BOUND = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}


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

    def tell(self, event: Object) -> None:
        """An event of a watch of the NODES, or of the PODS that are BOUND. Raises AgentError as `read` does."""
        found, deleted = event["object"], event["type"] == "DELETED"
        if event["type"] == "BOOKMARK":
            return
        if found["kind"] == "Node":
            if deleted:
                self.nodes.pop(found["metadata"]["name"], None)
            else:
                self.add_node(found)
        elif found["kind"] == "Pod":
            if deleted:
                self.seats.pop(found["metadata"]["uid"], None)
            else:
                self.add_pod(found)

    def add_node(self, found: Object) -> None:
        """A node, or what became of one."""
        node = node_of(found)
        self.nodes[node.name] = node

    def add_pod(self, found: Object) -> None:
        """A bound pod, or what became of one; what it requests cannot change."""
        metadata = found["metadata"]
        try:
            request = pod_request(found["spec"], self.resource)
        except QuantityError as error:
            raise AgentError(f"pod {metadata['namespace']}/{metadata['name']}: {self.resource}: {error}") from None
        if request:
            self.seats[metadata["uid"]] = Seat(found["spec"]["nodeName"], request)


def read(api: Api, resource: str) -> View:
    """Every node, and every bound pod that requests `resource`.

    Raises ApiError, and AgentError for a pod whose request cannot be read: a sum that lacks one would be too low.
    """
    view = View(resource=resource)
    for page in api.pages(NODES):
        view.nodes_version = page["metadata"]["resourceVersion"]
        for found in page["items"]:
            view.add_node(found)
    for page in api.pages(PODS, **BOUND):
        view.pods_version = page["metadata"]["resourceVersion"]
        for found in page["items"]:
            view.add_pod(found)
    return view
