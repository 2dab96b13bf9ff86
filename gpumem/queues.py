"""Reports the GPUs of Kueue's ClusterQueues: used, borrowed, and what could be borrowed. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agents.kube.client import Object
from tenancy.ledger import Ledger, QueueQuota
from tenancy.names import GPU
from tenancy.quantity import whole
from tenancy.workload import map_at, maps_at, text_at, value_or


@dataclass(frozen=True, kw_only=True)
class QueueRow:
    """The GPUs of a ClusterQueue in one flavor.

    `used` includes `borrowed`. `free` is idle quota of the queue itself, and `borrowable` is idle quota of its cohort
    that it may borrow. `lent` is what the other queues of its cohort borrow, so it is the same for all lenders.
    `waiting` counts the workloads of all flavors.
    """

    queue: str
    cohort: str
    flavor: str
    nominal: int
    used: int
    borrowed: int
    lent: int
    free: int
    borrowable: int
    waiting: int


def queue_rows(queues: Iterable[Object], ledger: Ledger, pool: str | None = None) -> tuple[QueueRow, ...]:
    """Returns a row for each ClusterQueue of the ledger that hands out GPUs. Raises ShapeError and QuantityError."""
    found = {text_at(map_at(each, "metadata"), "name"): each for each in queues}
    entries = [
        quota
        for quota in ledger.quotas
        if quota.resource == GPU and not quota.cohort and quota.queue in found and pool in (None, quota.pool)
    ]
    used = {id(quota): _used(found[quota.queue], quota) for quota in entries}
    cohorts = {quota.queue: text_at(map_at(found[quota.queue], "spec"), "cohortName") for quota in entries}
    return tuple(_rows(entries, found, used, cohorts))


def _rows(
    entries: list[QueueQuota], found: dict[str, Object], used: dict[int, tuple[int, int]], cohorts: dict[str, str]
) -> Iterator[QueueRow]:
    for quota in entries:
        cohort = cohorts[quota.queue]
        others = [
            each
            for each in entries
            if cohort and cohorts[each.queue] == cohort and each.flavor == quota.flavor and each is not quota
        ]
        total, borrowed = used[id(quota)]
        idle = sum(max(each.nominal - used[id(each)][0], 0) for each in others)
        lent = sum(used[id(each)][1] for each in others)
        yield QueueRow(
            queue=quota.queue,
            cohort=cohort,
            flavor=quota.flavor,
            nominal=quota.nominal,
            used=total,
            borrowed=borrowed,
            lent=lent,
            free=max(quota.nominal - total, 0),
            borrowable=max(min(quota.borrowing - borrowed, idle), 0),
            waiting=whole(value_or(map_at(found[quota.queue], "status"), "pendingWorkloads", 0)),
        )


def _used(queue: Object, quota: QueueQuota) -> tuple[int, int]:
    """Returns the GPUs in use, and how many of these are borrowed, as Kueue counts both."""
    for flavor in maps_at(queue, "status", "flavorsUsage"):
        for resource in maps_at(flavor, "resources"):
            if (flavor.get("name"), resource.get("name")) == (quota.flavor, quota.resource):
                return whole(value_or(resource, "total", 0)), whole(value_or(resource, "borrowed", 0))
    return 0, 0
