"""How many recycles an hour has left: of a tenant, on a node, and of all together."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from agents.watchdog.types import HourlyCaps, Recycled, Target

HOUR = timedelta(hours=1)


class Caps:
    """One tenant that runs away again and again uses up its own recycles; a node, its own. What a pass decides counts
    at once."""

    def __init__(self, caps: HourlyCaps, recycled: Iterable[Recycled], now: datetime) -> None:
        self._caps = caps
        hour = [each for each in recycled if now - each.at < HOUR]
        self._tenants = Counter(each.tenant for each in hour)
        self._nodes = Counter(each.node for each in hour)
        self._total = len(hour)

    def left(self, node: str) -> int:
        """How many more there may be on the node."""
        return max(min(self._caps.node - self._nodes[node], self._caps.total - self._total), 0)

    def allowed(self, node: str, targets: Iterable[Target]) -> Sequence[Target]:
        """Those that their tenants' caps allow, the first of each tenant."""
        taken: Counter[str] = Counter()
        found = []
        for target in targets:
            if self._tenants[target.tenant] + taken[target.tenant] < self._caps.tenant:
                taken[target.tenant] += 1
                found.append(target)
        return found

    def take(self, node: str, target: Target) -> None:
        self._tenants[target.tenant] += 1
        self._nodes[node] += 1
        self._total += 1

    def reached(self, node: str, targets: Iterable[Target]) -> str:
        """Which cap stands in the way."""
        if self._total >= self._caps.total:
            return f"{self._caps.total} recycles an hour of all tenants together"
        if self._nodes[node] >= self._caps.node:
            return f"{self._caps.node} recycles an hour on a node"
        full = sorted({each.tenant for each in targets if self._tenants[each.tenant] >= self._caps.tenant})
        whose = ", ".join(full) or "a tenant"
        return f"{self._caps.tenant} recycles an hour of {whose}"
