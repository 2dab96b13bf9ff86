"""Chooses the best node for a request, and computes a node's cost again only after the node has changed."""

import math
from collections.abc import Callable, Collection, Iterable

from agents.extender.cache.node_info import NodeInfo
from agents.extender.cache.seats import OwnSeats
from tenancy.devices.allocate import Chooser, MemoryRequest, Scoring, best_fit
from tenancy.devices.fragmentation import PodMix

# The maximum number of different requests in the cache of costs. Each request in the cache of costs takes about 80
# bytes per node.
_MOST = 32


class _Costs(dict[str, float]):
    """The costs of one request by node. `cost_of` computes each cost that is missing."""

    cost_of: Callable[[str], float]

    def __missing__(self, node: str) -> float:
        cost = self[node] = self.cost_of(node)
        return cost


class Ranking:
    """Caches the cost of each request on each node. Code that changes a node must call `changed`."""

    def __init__(self, scoring: Scoring) -> None:
        self.choose: Chooser = best_fit
        self._scoring = scoring
        self._costs: dict[tuple[MemoryRequest, object], _Costs] = {}
        self._changed: set[str] = set()

    def learn(self, usual: Iterable[MemoryRequest]) -> None:
        """Sets the requests of the bound pods for Scoring.FRAGMENTATION. Other scorings than FRAGMENTATION ignore this
        call.

        Before the first call, the best-fit method chooses the devices.
        """
        if self._scoring is Scoring.FRAGMENTATION:
            self.choose = PodMix(usual).choice
            self.clear()

    def changed(self, node: str) -> None:
        self._changed.add(node)

    def clear(self) -> None:
        self._costs.clear()

    def best(
        self, request: MemoryRequest, names: Collection[str], left: Callable[[str], NodeInfo], own: OwnSeats
    ) -> NodeInfo | None:
        """Returns the node with the lowest cost for the request, or None if no node has enough unused memory. If
        several nodes have the lowest cost, returns the first by name, so that pods fill one node after the other.
        `left` returns a copy of a node with the memory that the pod may use. Pods with the same request and the same
        `own` seats can use the same costs.
        """
        costs = self._remembered((request, frozenset(own.items())))
        costs.cost_of = lambda name: self._cost(left(name), request)
        found = [*map(costs.__getitem__, names)]
        least = min(found, default=math.inf)
        # With 1,000 nodes, a list is faster here than a generator.
        cheapest = [name for name, cost in zip(names, found, strict=True) if cost == least]
        return None if least == math.inf else left(min(cheapest))

    def best_by_ledger(self, request: MemoryRequest, nodes: Iterable[NodeInfo]) -> NodeInfo | None:
        """Returns the best of these nodes for a seat, even if other pods use the seat's memory."""

        def order(node: NodeInfo) -> tuple[float, str]:
            choice = node.choice(request, self.choose, seated=True)
            return (choice.cost if choice else math.inf, node.node)

        return min(nodes, key=order, default=None)

    def _remembered(self, pod: tuple[MemoryRequest, object]) -> _Costs:
        """Returns the cached costs of the pod by node, without the nodes that have changed."""
        for known in self._costs.values():
            for node in self._changed:
                known.pop(node, None)
        self._changed.clear()
        costs = self._costs[pod] = self._costs.pop(pod, _Costs())
        if len(self._costs) > _MOST:
            del self._costs[next(iter(self._costs))]
        return costs

    def _cost(self, node: NodeInfo, request: MemoryRequest) -> float:
        """Returns the cost of the request on the node, or infinity if the request does not fit. The cost on a node with
        nominations is not cached, because this cost depends on the pod.
        """
        if node.nominated:
            self.changed(node.node)
        choice = node.choice(request, self.choose)
        return math.inf if choice is None else choice.cost
