"""The nodes and bound pods of a run. The first sample lists them, and watches keep them up to date.

The cache counts as up to date only while every watch is open and no event waits. Otherwise the sample lists again.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agents.gate.pods import BoundPod, bound_pod
from agents.kube.client import Api, Object
from agents.kube.informer import Watches, WatchSource, read_list
from agents.kube.nodes import NODES, Node, node_of
from agents.kube.pods import BOUND, PODS, Pod, bound_pods_selector
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from tenancy.choices import Sharing
from tenancy.ledger import Ledger, SeveralPoolsError
from tenancy.names import EXPORTER, LABEL_NAME

# For fewer nodes than this, the pods of each node are listed and watched separately.
_MANY_NODES = 10
# If no event arrives for this time, all earlier events have been applied.
_QUIET_SECONDS = 0.05
# The largest number of waits for events or for the opening of a watch, before the sample lists again.
_MOST_WAITS = 40


class Following(Protocol):
    """The open watches, as in agents.kube.informer.Watches."""

    @property
    def all_open(self) -> bool: ...

    def take(self, seconds: float) -> list[Object]: ...

    def close(self) -> None: ...


@dataclass(kw_only=True)
class ClusterCache:
    """Stores nodes by name, and by UID the pods on nodes with telemetry, also the exporters' pods.

    `exporter_namespace` is the namespace of the exporters' pods.
    """

    api: Api
    clock: Clock
    log: Log
    exporter_namespace: str
    watch: Callable[[Api, Clock, Sequence[WatchSource]], Following] = Watches
    _nodes: dict[str, Node] = field(default_factory=dict)
    _pods: dict[str, BoundPod] = field(default_factory=dict)
    _exporters: dict[str, Object] = field(default_factory=dict)
    _ledger: Ledger | None = None
    _names: frozenset[str] = frozenset()
    _watches: Following | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Returns the nodes in the order of a list."""
        return tuple(self._nodes[name] for name in sorted(self._nodes))

    @property
    def pool_nodes(self) -> Mapping[str, object]:
        """Returns the nodes with telemetry by name, with those fields from which the telemetry depends."""
        if self._ledger is None:
            return {}
        key = self._ledger.names.device_excluded
        found = {name: self._nodes[name] for name in self._with_telemetry(self._ledger)}
        return {name: (node.labels, node.annotations.get(key)) for name, node in found.items()}

    @property
    def pods(self) -> tuple[BoundPod, ...]:
        return tuple(self._pods.values())

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        """Yields the exporters' pods. With this method, the cache is the Lister of the telemetry."""
        yield from self._exporters.values()

    def update(self, ledger: Ledger) -> bool:
        """Applies all events of the watches. Returns False if the cache is not up to date and must be listed again.

        The cache depends on the ledger, so a new ledger also needs new lists.
        """
        if self._watches is None:
            return False
        if ledger == self._ledger and self._is_drained(self._watches) and self._names == self._with_telemetry(ledger):
            return True
        self.close()
        return False

    def list_all(self, ledger: Ledger) -> None:
        """Rebuilds the cache from new lists, and opens the watches. Raises ApiError."""
        self.close()
        self._ledger = ledger
        nodes = read_list(self.api, NODES, node_of)
        self._nodes = {node.name: node for node in nodes.items}
        self._pods, self._exporters = {}, {}
        self._names = self._with_telemetry(ledger)
        lists = [read_list(self.api, PODS, self._kept, selection) for selection in _selections(self._names)]
        self._watches = self.watch(self.api, self.clock, [nodes.source, *(found.source for found in lists)])

    def close(self) -> None:
        """Closes the watches. The cache is not up to date until the next list."""
        watches, self._watches = self._watches, None
        if watches is not None:
            watches.close()

    def _is_drained(self, watches: Following) -> bool:
        """Applies the events until none waits. Returns False if a watch failed, is not open, or has too many events."""
        try:
            for _ in range(_MOST_WAITS):
                events = watches.take(_QUIET_SECONDS)
                for event in events:
                    self._apply(event)
                if not events and watches.all_open:
                    return True
        except AgentError as error:
            self.log.info(f"lost a watch, lists again: {error}")
            return False
        self.log.info("the watches are not up to date, lists again")
        return False

    def _with_telemetry(self, ledger: Ledger) -> frozenset[str]:
        return frozenset(name for name, node in self._nodes.items() if _has_telemetry(node, ledger))

    def _apply(self, event: Object) -> None:
        found, gone = event["object"], event["type"] == "DELETED"
        match found.get("kind"):
            case "Node" if event["type"] != "BOOKMARK":
                self._nodes.pop(found["metadata"]["name"], None)
                if not gone:
                    self._nodes[found["metadata"]["name"]] = node_of(found)
            case "Pod" if event["type"] != "BOOKMARK":
                uid = found["metadata"]["uid"]
                self._pods.pop(uid, None)
                self._exporters.pop(uid, None)
                if not gone:
                    self._kept(found)

    def _kept(self, item: Object) -> str | None:
        """Stores a pod on a node with telemetry that has not ended. Returns its UID, or None for any other pod."""
        pod = Pod(item)
        if self._ledger is None or pod.node not in self._names or pod.ended:
            return None
        self._pods[pod.uid] = bound_pod(pod, self._ledger, self.log)
        if pod.namespace == self.exporter_namespace and pod.labels.get(LABEL_NAME) == EXPORTER:
            self._exporters[pod.uid] = _trimmed(pod)
        return pod.uid


def _has_telemetry(node: Node, ledger: Ledger) -> bool:
    try:
        pool = ledger.pool_of(node.labels)
    except SeveralPoolsError as error:
        return any(pool.sharing is Sharing.MEMORY for pool in error.pools)
    return pool is not None and pool.sharing is Sharing.MEMORY


def _selections(names: Collection[str]) -> list[Mapping[str, str]]:
    """Returns the selectors for the pods on these nodes: one for each node, or one for the pods on all nodes."""
    return (
        [BOUND]
        if len(names) >= _MANY_NODES
        else [{"fieldSelector": bound_pods_selector(name)} for name in sorted(names)]
    )


def _trimmed(pod: Pod) -> Object:
    """Returns the fields of an exporter's pod from which the telemetry takes its address."""
    metadata = {
        key: pod.metadata[key] for key in ("name", "namespace", "uid", "deletionTimestamp") if key in pod.metadata
    }
    status = {key: pod.status[key] for key in ("phase", "podIP") if key in pod.status}
    return {"metadata": metadata, "spec": {"nodeName": pod.node}, "status": status}
