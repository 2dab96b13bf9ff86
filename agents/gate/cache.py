"""The nodes and bound pods of a run of the gate. The first sample lists the nodes and bound pods, and watches keep the
cache up to date.

The cache is up to date only if every watch is open and every received event is applied. If the cache is not up to date,
the gate lists the nodes and pods again for the sample.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from agents.gate.pods import BoundPod, bound_pod
from agents.kube.client import Api, Object
from agents.kube.fields import named, uid_of
from agents.kube.informer import Watches, WatchSource, read_list
from agents.kube.nodes import NODES, Node, node_of
from agents.kube.pods import BOUND, PODS, bound_pods_selector
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.items import ItemProblems
from agents.runtime.log import Log
from agents.telemetry.client import Exporter, exporter_of
from tenancy.choices import Sharing
from tenancy.ledger import Ledger, SeveralPoolsError

# If the pools have fewer nodes than this number, the gate lists and watches the pods of each node separately.
_MANY_NODES = 10
# If a watch brings no event for this many seconds, the gate has applied all earlier events.
_QUIET_SECONDS = 0.05
# The number of times that a sample waits for events or for the opening of a watch. A sample that has waited this number
# of times uses new lists.
_MOST_WAITS = 40


class Following(Protocol):
    """The open watches. The watches have the methods of agents.kube.informer.Watches."""

    @property
    def all_open(self) -> bool: ...

    def take(self, seconds: float) -> list[Object]: ...

    def close(self) -> None: ...


@dataclass(kw_only=True)
class ClusterCache:
    """Stores nodes by name. Stores by UID the exporters' pods and all other pods on nodes with telemetry.

    `exporter_namespace` is the namespace of the exporters' pods.
    """

    api: Api
    clock: Clock
    log: Log
    problems: ItemProblems
    exporter_namespace: str
    watch: Callable[[Api, Clock, Sequence[WatchSource]], Following] = Watches
    _nodes: dict[str, Node] = field(default_factory=dict)
    _pods: dict[str, BoundPod] = field(default_factory=dict)
    _exporters: dict[str, Exporter] = field(default_factory=dict)
    _ledger: Ledger | None = None
    _names: frozenset[str] = frozenset()
    _watches: Following | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Returns the nodes sorted by name, as in a list of the API."""
        return tuple(self._nodes[name] for name in sorted(self._nodes))

    @property
    def pool_nodes(self) -> Mapping[str, object]:
        """Returns, for each node with telemetry, the fields on which its telemetry depends."""
        if self._ledger is None:
            return {}
        key = self._ledger.names.device_excluded
        found = {name: self._nodes[name] for name in self._with_telemetry(self._ledger)}
        return {name: (node.labels, node.annotations.get(key)) for name, node in found.items()}

    @property
    def pods(self) -> tuple[BoundPod, ...]:
        return tuple(self._pods.values())

    @property
    def exporters(self) -> tuple[Exporter, ...]:
        return tuple(self._exporters.values())

    def update(self, ledger: Ledger) -> bool:
        """Applies all events of the watches to the cache. Returns False if the cache is not up to date, so that the
        gate must list the objects again.

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
        """Applies the watches' events until no event is left. Returns False if a watch has failed, is not open, or has
        too many events.
        """
        try:
            for _ in range(_MOST_WAITS):
                events = watches.take(_QUIET_SECONDS)
                for event in events:
                    self.problems.judge("event of", named(event["object"]), partial(self._apply, event), lambda _: None)
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
                self._nodes.pop(named(found), None)
                if not gone:
                    self._nodes[named(found)] = node_of(found)
            case "Pod" if event["type"] != "BOOKMARK":
                uid = uid_of(found)
                self._pods.pop(uid, None)
                self._exporters.pop(uid, None)
                if not gone:
                    self._kept(found)

    def _kept(self, item: Object) -> str | None:
        """Stores the pod if it is on a node with telemetry and has not ended. Returns the UID of a stored
        pod, or None.
        """
        pod = None if self._ledger is None else bound_pod(item, self._names, self._ledger, self.problems)
        if pod is None:
            return None
        self._pods[pod.uid] = pod
        if pod.namespace == self.exporter_namespace and (exporter := exporter_of(item)):
            self._exporters[pod.uid] = exporter
        return pod.uid


def _has_telemetry(node: Node, ledger: Ledger) -> bool:
    try:
        pool = ledger.pool_of(node.labels)
    except SeveralPoolsError as error:
        return any(pool.sharing is Sharing.MEMORY for pool in error.pools)
    return pool is not None and pool.sharing is Sharing.MEMORY


def _selections(names: Collection[str]) -> list[Mapping[str, str]]:
    """Returns the selectors for the pods on these nodes. The result has one selector for each node, or one selector for
    all nodes.
    """
    return (
        [BOUND]
        if len(names) >= _MANY_NODES
        else [{"fieldSelector": bound_pods_selector(name)} for name in sorted(names)]
    )
