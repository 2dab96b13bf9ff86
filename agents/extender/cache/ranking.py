"""What a pod would cost on each node, by what it asks: judged once until the node changes."""

from tenancy.devices.allocate import Ask

# Asks that are remembered, the last ones; each takes some 80 bytes a node.
_MOST = 32


class Ranking:
    """Whoever changes a node calls `changed`."""

    def __init__(self) -> None:
        self._costs: dict[Ask, dict[str, float]] = {}
        self._changed: set[str] = set()

    def changed(self, node: str) -> None:
        """What is remembered of the node no longer counts."""
        self._changed.add(node)

    def clear(self) -> None:
        """Nothing that is remembered counts."""
        self._costs.clear()

    def costs(self, ask: Ask) -> dict[str, float]:
        """By node. Of one that changed nothing is there: the caller adds what he finds."""
        for known in self._costs.values():
            for node in self._changed:
                known.pop(node, None)
        self._changed.clear()
        costs = self._costs[ask] = self._costs.pop(ask, {})
        if len(self._costs) > _MOST:
            del self._costs[next(iter(self._costs))]
        return costs
