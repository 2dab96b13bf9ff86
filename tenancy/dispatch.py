"""Compares the quotas of queues that dispatch work with the promises of the worker clusters.

Each contradiction is a message with the amounts and the keys to change.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tenancy.ledger import Ledger, QueueQuota


@dataclass(frozen=True)
class DispatchQuota:
    """The quota of a ClusterQueue for one resource, in all flavors together. `most` also contains the quota that the
    queue can borrow.
    """

    queue: str
    resource: str
    clusters: tuple[str, ...]
    nominal: int
    most: int


def dispatch_quotas(ledger: Ledger) -> list[DispatchQuota]:
    """Returns the quotas of all dispatching queues, sorted by resource and queue."""
    grouped: dict[tuple[str, str], list[QueueQuota]] = {}
    for quota in ledger.quotas:
        if quota.clusters:
            grouped.setdefault((quota.resource, quota.queue), []).append(quota)
    return [
        DispatchQuota(queue, resource, found[0].clusters, sum(q.nominal for q in found), sum(q.most for q in found))
        for (resource, queue), found in sorted(grouped.items())
    ]


def promises(ledger: Ledger, resource: str) -> dict[str, int]:
    """Maps each worker cluster to the amount of the resource that it promises."""
    return {cluster.name: cluster.promises.get(resource, 0) for cluster in ledger.clusters}


def overdrawn(ledger: Ledger) -> Iterator[str]:
    """Reports queues that hand out more than their worker clusters promise."""
    by_resource: dict[str, list[DispatchQuota]] = {}
    for quota in dispatch_quotas(ledger):
        by_resource.setdefault(quota.resource, []).append(quota)
    for resource, found in by_resource.items():
        supply = promises(ledger, resource)
        above = [each for each in found if each.most > sum(supply.get(name, 0) for name in each.clusters)]
        for each in above:
            what = f"ClusterQueue {each.queue}: may hand out {each.most} {resource} (nominal and borrowed)"
            yield _too_many(what, each.clusters, supply)
        short = () if above else _Flow(supply).short_of(found)
        if short:
            names = ", ".join(sorted(each.queue for each in short))
            reached = sorted({name for each in short for name in each.clusters})
            what = f"ClusterQueues {names}: hand out {sum(each.nominal for each in short)} {resource} together"
            yield _too_many(what, reached, supply)


def _too_many(what: str, clusters: Sequence[str], supply: Mapping[str, int]) -> str:
    total = sum(supply.get(name, 0) for name in clusters)
    each = ", ".join(f"{name} {supply.get(name, 0)}" for name in clusters)
    keys = " or ".join(f"queues.clusters.{name}.promises" for name in clusters)
    return (
        f"{what}, but the worker clusters promise {total} ({each}); lower nominal or borrowing_limit, or raise {keys}"
    )


# The path of a search: each visited queue, with the queue and the cluster before it.
_Path = dict[str, tuple[DispatchQuota, str] | None]


@dataclass
class _Flow:
    """Divides the promises of the worker clusters among queues. A queue can use several clusters."""

    supply: Mapping[str, int]
    given: dict[tuple[str, str], int] = field(default_factory=dict)  # the keys are a queue and a cluster

    def short_of(self, wanted: Sequence[DispatchQuota]) -> tuple[DispatchQuota, ...]:
        """Returns queues if the sum of their nominal quotas is larger than the promises of all their clusters. Returns
        an empty tuple if the clusters can give all nominal quotas.

        The algorithm is maximum flow by augmenting paths. Hall's theorem proves that the queues that a failed search
        has visited have larger quotas than their clusters promise.
        """
        for quota in wanted:
            left = quota.nominal
            while left:
                step, seen = self._search(quota, wanted, left)
                if not step:
                    return tuple(each for each in wanted if each.queue in seen)
                left -= step
        return ()

    def _search(self, start: DispatchQuota, wanted: Sequence[DispatchQuota], left: int) -> tuple[int, set[str]]:
        """Gives the queue at most the amount `left`. Returns the given amount, and the queues that the search has
        visited."""
        came_from: _Path = {start.queue: None}
        reached: set[str] = set()
        waiting = [start]
        for quota in waiting:
            for cluster in quota.clusters:
                if cluster in reached:
                    continue
                reached.add(cluster)
                room = self.supply.get(cluster, 0) - sum(n for (_, name), n in self.given.items() if name == cluster)
                if room > 0:
                    return self._give(quota, cluster, min(room, left), came_from), set()
                for other in wanted:
                    if other.queue not in came_from and self.given.get((other.queue, cluster)):
                        came_from[other.queue] = (quota, cluster)
                        waiting.append(other)
        return 0, set(came_from)

    def _give(self, last: DispatchQuota, cluster: str, amount: int, came_from: _Path) -> int:
        path, quota, target = [], last, cluster
        while (before := came_from[quota.queue]) is not None:
            earlier, shared = before
            path.append((quota.queue, shared, target))
            amount = min(amount, self.given[quota.queue, shared])
            quota, target = earlier, shared
        for queue, old, new in path:
            self.given[queue, old] -= amount
            self.given[queue, new] = self.given.get((queue, new), 0) + amount
        self.given[quota.queue, target] = self.given.get((quota.queue, target), 0) + amount
        return amount
