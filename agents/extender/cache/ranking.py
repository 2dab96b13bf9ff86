"""The choice of the best node for a request. A node is judged once for each request, until the node changes."""

import math
from collections.abc import Callable, Collection, Iterable

from agents.extender.cache.node_info import NodeInfo
from tenancy.devices.allocate import Chooser, MemoryRequest, Scoring, best_fit
from tenancy.devices.fragmentation import Mix

# The number of requests for which the costs are remembered. Each takes about 80 bytes a node.
_MOST = 32


class Ranking:
    """The remembered costs, by request and node. Code that changes a node calls `changed`."""

    def __init__(self, scoring: Scoring) -> None:
        self.choose: Chooser = best_fit
        self._scoring = scoring
        self._costs: dict[MemoryRequest, dict[str, float]] = {}
        self._changed: set[str] = set()

    def learn(self, usual: Iterable[MemoryRequest]) -> None:
        """With Scoring.FRAGMENTATION, takes these asks as the usual ones. Before that, best fit chooses."""
        if self._scoring is Scoring.FRAGMENTATION:
            self.choose = Mix(usual).choice
            self.clear()

    def changed(self, node: str) -> None:
        self._changed.add(node)

    def clear(self) -> None:
        self._costs.clear()

    def best(self, request: MemoryRequest, names: Collection[str], left: Callable[[str], NodeInfo]) -> NodeInfo | None:
        """The node of least cost with unused memory for the request; None if it fits nowhere.

        The first by name wins a tie, so that nodes fill one by one. `left` returns a node as the pod finds it.
        """
        costs = self._remembered(request)
        for name in names:
            if name not in costs:
                costs[name] = self._cost(left(name), request)
        least = min(map(costs.__getitem__, names), default=math.inf)
        return None if least == math.inf else left(min(name for name in names if costs[name] == least))

    def best_by_ledger(self, request: MemoryRequest, nodes: Iterable[NodeInfo]) -> NodeInfo | None:
        """The best of these nodes for a seat, even if others use its memory."""

        def order(node: NodeInfo) -> tuple[float, str]:
            choice = node.choice(request, self.choose, seated=True)
            return (choice.cost if choice else math.inf, node.node)

        return min(nodes, key=order, default=None)

    def _remembered(self, request: MemoryRequest) -> dict[str, float]:
        """The costs by node; nodes that changed are missing, and the caller adds them."""
        for known in self._costs.values():
            for node in self._changed:
                known.pop(node, None)
        self._changed.clear()
        costs = self._costs[request] = self._costs.pop(request, {})
        if len(self._costs) > _MOST:
            del self._costs[next(iter(self._costs))]
        return costs

    def _cost(self, node: NodeInfo, request: MemoryRequest) -> float:
        """The cost of the request on the node; infinite if it does not fit.

        A node with nominations is judged again each time, because its room depends on the pod that asks.
        """
        if node.nominated:
            self.changed(node.node)
        choice = node.choice(request, self.choose)
        return math.inf if choice is None else choice.cost
