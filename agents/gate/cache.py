"""The nodes, GPU pods and exporters of a run of the gate. Watches keep them up to date after the first list.

Admission labels each pod that reaches a GPU, so the cost of the gate does not depend on other pods. The label is only
an index. If a pod without the label uses a device, or before an act, the gate lists all pods of the node.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from agents.gate.pods import BoundPod, bound_pod
from agents.kube.client import Api, Object
from agents.kube.fields import named
from agents.kube.informer import Watches, WatchSource
from agents.kube.nodes import NODES, Node, node_of
from agents.kube.pods import GPU_PODS, PODS, bound_pods_selector, pods_of
from agents.kube.store import Store
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.items import ItemProblems
from agents.runtime.log import Log
from agents.telemetry.client import EXPORTERS, Exporter, NodeTelemetry, exporter_of
from tenancy.ledger import Ledger

# A sample takes events so many times, and waits so long for more events after events.
_MOST_ROUNDS = 20
_ROUND_SECONDS = 0.05


@dataclass(kw_only=True)
class ClusterCache:
    """Stores the nodes, the GPU pods that are on a node and have not ended, and the exporters.

    `exporter_namespace` is the namespace of the exporters' pods, in which no pod reaches a GPU by a budget.
    """

    api: Api
    clock: Clock
    log: Log
    problems: ItemProblems
    exporter_namespace: str
    watch: Callable[[Api, Clock, Sequence[WatchSource]], Watches] = Watches
    _ledger: Ledger | None = None
    _watches: Watches | None = None

    def __post_init__(self) -> None:
        self.nodes = Store[Node](path=NODES, keep=node_of)
        self.exporters = Store[Exporter](path=pods_of(self.exporter_namespace), keep=exporter_of, parameters=EXPORTERS)
        self._pods = Store[BoundPod](path=PODS, keep=self._bound_pod, parameters=GPU_PODS)

    def update(self, ledger: Ledger) -> None:
        """Applies the events that have arrived. Lists all objects at first, and after a watch has failed or the
        resource domain has changed. Raises ApiError.
        """
        if self._watches is not None and self._ledger is not None and self._ledger.names == ledger.names:
            try:
                self._take(self._watches)
            except AgentError as error:
                self.log.info(f"lost a watch, lists again: {error}")
            else:
                return
        self._list(ledger)

    def close(self) -> None:
        """Closes the watches. The next update lists the objects again."""
        watches, self._watches = self._watches, None
        if watches is not None:
            watches.close()

    def pods_on(self, reading: NodeTelemetry, ledger: Ledger, *, listed: bool) -> list[BoundPod]:
        """Returns the pods on the node that have not ended. Lists the pods of the node if `listed`, or if the watch
        lacks a pod that uses a device. Raises ApiError.
        """
        watched = [pod for pod in self._pods.kept.values() if pod.node == reading.node]
        if not listed and {use.uid for use in reading.uses} <= {pod.uid for pod in watched}:
            return watched
        items = self.api.items(PODS, fieldSelector=bound_pods_selector(reading.node))
        return [pod for item in items if (pod := bound_pod(item, ledger, self.problems))]

    def _list(self, ledger: Ledger) -> None:
        self.close()
        self._ledger = ledger
        sources = [store.list(self.api) for store in (self.nodes, self._pods, self.exporters)]
        self._watches = self.watch(self.api, self.clock, sources)

    def _take(self, watches: Watches) -> None:
        """Applies the events that have arrived. A watch reads further events only after the ones before are applied."""
        seconds = 0.0
        for _ in range(_MOST_ROUNDS):
            events = watches.take(seconds)
            if not events:
                return
            seconds = _ROUND_SECONDS
            for event in events:
                self.problems.judge("event of", named(event["object"]), partial(self._apply, event), lambda _: None)

    def _apply(self, event: Object) -> None:
        found = event["object"]
        if event["type"] == "BOOKMARK":
            return
        if found["kind"] == "Node":
            self.nodes.apply(event)
        elif found["metadata"]["namespace"] == self.exporter_namespace:
            self.exporters.apply(event)
        else:
            self._pods.apply(event)

    def _bound_pod(self, item: Object) -> BoundPod | None:
        return bound_pod(item, self._ledger, self.problems) if self._ledger else None
