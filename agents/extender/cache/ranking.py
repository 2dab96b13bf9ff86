"""Chooses the best node for a request. Judges a node once for each request, until the node changes."""

import math
from collections.abc import Callable, Collection, Iterable

from agents.extender.cache.node_info import NodeInfo
from tenancy.devices.allocate import Chooser, MemoryRequest, Scoring, best_fit
from tenancy.devices.fragmentation import Mix

# The number of requests for which the costs are remembered. Each takes about 80 bytes a node.
_MOST = 32


class Ranking:
    """Remembers the costs by request and node. Code that changes a node calls `changed`."""

    def __init__(self, scoring: Scoring) -> None:
        self.choose: Chooser = best_fit
        self._scoring = scoring
        self._costs: dict[MemoryRequest, dict[str, float]] = {}
        self._changed: set[str] = set()

    def learn(self, usual: Iterable[MemoryRequest]) -> None:
        """Takes these requests as the usual ones, with Scoring.FRAGMENTATION.

        Before the first call, best fit chooses.
        """
        if self._scoring is Scoring.FRAGMENTATION:
            self.choose = Mix(usual).choice
            self.clear()

    def changed(self, node: str) -> None:
        self._changed.add(node)

    def clear(self) -> None:
        self._costs.clear()

    def best(self, request: MemoryRequest, names: Collection[str], left: Callable[[str], NodeInfo]) -> NodeInfo | None:
        """Returns the node of least cost with unused memory for the request, or None if no node has enough.

        Of nodes with equal costs, the first by name is chosen, so that nodes fill one by one. `left` returns a node as
        the pod finds it.
        """
        costs = self._remembered(request)
        for name in names:
            if name not in costs:
                costs[name] = self._cost(left(name), request)
        least = min(map(costs.__getitem__, names), default=math.inf)
        return None if least == math.inf else left(min(name for name in names if costs[name] == least))

    def best_by_ledger(self, request: MemoryRequest, nodes: Iterable[NodeInfo]) -> NodeInfo | None:
        """Returns the best of these nodes for a seat, even if other pods use the memory."""

        def order(node: NodeInfo) -> tuple[float, str]:
            choice = node.choice(request, self.choose, seated=True)
            return (choice.cost if choice else math.inf, node.node)

        return min(nodes, key=order, default=None)

    def _remembered(self, request: MemoryRequest) -> dict[str, float]:
        """Returns the remembered costs by node. Nodes that changed are missing, and the caller adds them."""
        for known in self._costs.values():
            for node in self._changed:
                known.pop(node, None)
        self._changed.clear()
        costs = self._costs[request] = self._costs.pop(request, {})
        if len(self._costs) > _MOST:
            del self._costs[next(iter(self._costs))]
        return costs

    def _cost(self, node: NodeInfo, request: MemoryRequest) -> float:
        """Returns the cost of the request on the node; infinite if the request does not fit.

        A node with nominations is judged again each time, because its free memory depends on the pod that asks.
        """
        if node.nominated:
            self.changed(node.node)
        choice = node.choice(request, self.choose)
        return math.inf if choice is None else choice.cost
